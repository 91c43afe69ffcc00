"""The names of BART's tensors on disk, which mBART and Marian share."""

from regard.checkpoints import KeyMap, Rename, Shared


def _stack(stack: str) -> tuple[Rename, ...]:
    theirs, ours = f"{stack}.layers.{{layer}}", f"{stack}.layers.{{layer}}"
    return (
        Rename(f"{stack}.embed_tokens.weight", f"{stack}.embeddings.tokens.weight"),
        Rename(f"{stack}.embed_positions.weight", f"{stack}.embeddings.positions.weight"),
        Rename(f"{stack}.layernorm_embedding.{{part}}", f"{stack}.embeddings.norm.{{part}}"),
        *_attention(f"{theirs}.self_attn", f"{ours}.attention"),
        Rename(f"{theirs}.fc1.{{part}}", f"{ours}.ffn.hidden.{{part}}"),
        Rename(f"{theirs}.fc2.{{part}}", f"{ours}.ffn.output.{{part}}"),
        Rename(f"{theirs}.final_layer_norm.{{part}}", f"{ours}.ffn_residual.norm.{{part}}"),
        # mBART has a norm after the last layer.
        Rename(f"{stack}.layer_norm.{{part}}", f"{stack}.norm.{{part}}"),
    )


def _attention(theirs: str, ours: str) -> tuple[Rename, ...]:
    return (
        Rename(f"{theirs}.q_proj.{{part}}", f"{ours}.q.{{part}}"),
        Rename(f"{theirs}.k_proj.{{part}}", f"{ours}.k.{{part}}"),
        Rename(f"{theirs}.v_proj.{{part}}", f"{ours}.v.{{part}}"),
        Rename(f"{theirs}.out_proj.{{part}}", f"{ours}.output.{{part}}"),
        Rename(f"{theirs}_layer_norm.{{part}}", f"{ours}_residual.norm.{{part}}"),
    )


BART_KEYS = KeyMap(
    rules=(
        Shared(
            "shared.weight",
            (
                "encoder.embeddings.tokens.weight",
                "decoder.embeddings.tokens.weight",
                "head.output.weight",
            ),
        ),
        *_stack("encoder"),
        *_stack("decoder"),
        *_attention("decoder.layers.{layer}.encoder_attn", "decoder.layers.{layer}.cross_attention"),
        Rename("lm_head.weight", "head.output.weight"),
        Rename("final_logits_bias", "head.bias"),
        Rename("classification_head.dense.{part}", "head.hidden.{part}"),
        Rename("classification_head.out_proj.{part}", "head.score.{part}"),
    ),
    prefixes=("model.",),
    heads=("lm_head.", "final_logits_bias", "classification_head.", "qa_outputs."),
    # fairseq's, and Marian's sinusoids, which follow from the sizes.
    buffers=(
        "encoder.version",
        "decoder.version",
        "encoder.embed_positions._float_tensor",
        "decoder.embed_positions._float_tensor",
    ),
)
"""BART's names on disk and in the network."""
