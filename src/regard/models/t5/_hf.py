"""The names of T5's tensors on disk."""

from regard.checkpoints import KeyMap, Rename, Shared


def _stack(stack: str, *, ffn: int) -> tuple[Rename, ...]:
    """The names that both stacks have, under their own; `ffn` is the number of the feed-forward sublayer."""
    theirs, ours = f"{stack}.block.{{layer}}.layer", f"{stack}.layers.{{layer}}"
    first = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    return (
        Rename(f"{stack}.embed_tokens.weight", f"{stack}.embeddings.tokens.weight"),
        Rename(first, f"{stack}.bias.table.weight"),
        *_attention(f"{theirs}.0", "SelfAttention", f"{ours}.attention"),
        Rename(f"{theirs}.{ffn}.layer_norm.weight", f"{ours}.ffn_residual.norm.weight"),
        Rename(f"{theirs}.{ffn}.DenseReluDense.wi.weight", f"{ours}.ffn.hidden.weight"),
        Rename(f"{theirs}.{ffn}.DenseReluDense.wi_0.weight", f"{ours}.ffn.gate.weight"),
        Rename(f"{theirs}.{ffn}.DenseReluDense.wi_1.weight", f"{ours}.ffn.up.weight"),
        Rename(f"{theirs}.{ffn}.DenseReluDense.wo.weight", f"{ours}.ffn.output.weight"),
        Rename(f"{stack}.final_layer_norm.weight", f"{stack}.norm.weight"),
    )


def _attention(theirs: str, name: str, ours: str) -> tuple[Rename, ...]:
    return (
        Rename(f"{theirs}.{name}.q.weight", f"{ours}.q.weight"),
        Rename(f"{theirs}.{name}.k.weight", f"{ours}.k.weight"),
        Rename(f"{theirs}.{name}.v.weight", f"{ours}.v.weight"),
        Rename(f"{theirs}.{name}.o.weight", f"{ours}.output.weight"),
        Rename(f"{theirs}.layer_norm.weight", f"{ours}_residual.norm.weight"),
    )


T5_KEYS = KeyMap(
    rules=(
        Shared(
            "shared.weight",
            (
                "encoder.embeddings.tokens.weight",
                "decoder.embeddings.tokens.weight",
                "head.output.weight",
            ),
        ),
        *_stack("encoder", ffn=1),
        *_stack("decoder", ffn=2),
        *_attention(
            "decoder.block.{layer}.layer.1", "EncDecAttention", "decoder.layers.{layer}.cross_attention"
        ),
        Rename("lm_head.weight", "head.output.weight"),
        Rename("classification_head.dense.{part}", "head.hidden.{part}"),
        Rename("classification_head.out_proj.{part}", "head.score.{part}"),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("transformer.",),
    heads=("classification_head.", "classifier.", "qa_outputs."),
    left_out=(
        "lm_head.",
        # Stored by the first T5 files, read by none: cross-attention has no relative bias.
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.",
    ),
)
"""T5's names on disk and in the network."""
