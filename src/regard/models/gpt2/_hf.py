"""The names of GPT-2's tensors on disk. Its linear layers are stored as (in, out), q, k and v in one."""

from regard.checkpoints import KeyMap, Rename, Split

_ATTENTION = "decoder.layers.{layer}.attention"

GPT2_KEYS = KeyMap(
    rules=(
        Rename("wte.weight", "decoder.embeddings.tokens.weight"),
        Rename("wpe.weight", "decoder.embeddings.positions.weight"),
        Rename("h.{layer}.ln_1.{part}", "decoder.layers.{layer}.attention_residual.norm.{part}"),
        Split(
            "h.{layer}.attn.c_attn.{part}",
            (f"{_ATTENTION}.q.{{part}}", f"{_ATTENTION}.k.{{part}}", f"{_ATTENTION}.v.{{part}}"),
            transposed=True,
        ),
        Rename("h.{layer}.attn.c_proj.{part}", f"{_ATTENTION}.output.{{part}}", transposed=True),
        Rename("h.{layer}.ln_2.{part}", "decoder.layers.{layer}.ffn_residual.norm.{part}"),
        Rename("h.{layer}.mlp.c_fc.{part}", "decoder.layers.{layer}.ffn.hidden.{part}", transposed=True),
        Rename("h.{layer}.mlp.c_proj.{part}", "decoder.layers.{layer}.ffn.output.{part}", transposed=True),
        Rename("ln_f.{part}", "decoder.norm.{part}"),
        Rename("lm_head.weight", "head.output.weight"),
        Rename("score.weight", "head.score.weight"),
        Rename("classifier.{part}", "head.labels.{part}"),
    ),
    prefixes=("transformer.",),
    heads=("lm_head.", "score.", "classifier.", "qa_outputs.", "multiple_choice_head."),
    # The causal mask, and the number that stood in for minus infinity: written by transformers before 4.31.
    buffers=("h.{layer}.attn.bias", "h.{layer}.attn.masked_bias"),
)
"""GPT-2's names on disk and in the network."""
