"""Tiny random transformers models for the tests of the lens: sizes that all differ, weights that differ."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from unit.models.folders import write_tokenizer

VOCAB, LAYERS, DECODER_LAYERS, HEADS, D_FF = 97, 2, 3, 4, 44
D_MODEL = 8 * HEADS

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": D_MODEL,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": D_FF,
    "max_position_embeddings": 41,
}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = SIZES | IDS | {"num_key_value_heads": 2, "head_dim": 8}
BOTH = IDS | {
    "vocab_size": VOCAB,
    "d_model": D_MODEL,
    "decoder_start_token_id": 2,
    "encoder_layers": LAYERS,
    "decoder_layers": DECODER_LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": D_FF,
    "decoder_ffn_dim": 36,
    "max_position_embeddings": 41,
}


def build(cls: Any, config: Any, *, dtype: torch.dtype = torch.float32) -> Any:
    """A model in evaluation mode, every parameter drawn anew: a fresh one attends to everything alike."""
    torch.manual_seed(0)
    model = cls._from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape)
            parameter.copy_(0.3 * noise if parameter.ndim > 1 else parameter + 0.1 * noise)
    return model.to(dtype)


def bert(**fields: Any) -> Any:
    return build(transformers.BertForMaskedLM, transformers.BertConfig(**(SIZES | fields)))


def gpt2(**fields: Any) -> Any:
    sizes = {"vocab_size": VOCAB, "n_embd": D_MODEL, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 41}
    return build(transformers.GPT2LMHeadModel, transformers.GPT2Config(**(sizes | IDS | fields)))


def _distilbert() -> Any:
    config = transformers.DistilBertConfig(
        vocab_size=VOCAB,
        dim=D_MODEL,
        n_layers=LAYERS,
        n_heads=HEADS,
        hidden_dim=D_FF,
        max_position_embeddings=41,
    )
    return build(transformers.DistilBertModel, config)


def _gpt_oss() -> Any:
    config = transformers.GptOssConfig(
        **GROUPED,
        num_local_experts=3,
        num_experts_per_tok=2,
        sliding_window=5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    return build(transformers.GptOssForCausalLM, config)


def _t5() -> Any:
    config = transformers.T5Config(
        vocab_size=VOCAB,
        d_model=D_MODEL,
        d_kv=6,
        d_ff=D_FF,
        num_layers=LAYERS,
        num_decoder_layers=DECODER_LAYERS,
        num_heads=HEADS,
        decoder_start_token_id=0,
    )
    return build(transformers.T5ForConditionalGeneration, config)


FAMILIES: dict[str, Callable[[], Any]] = {
    "bert": bert,
    "distilbert": _distilbert,
    "albert": lambda: build(
        transformers.AlbertModel, transformers.AlbertConfig(**SIZES | IDS, embedding_size=12)
    ),
    "modernbert": lambda: build(
        transformers.ModernBertModel,
        transformers.ModernBertConfig(
            **SIZES | IDS | {"num_hidden_layers": 4}, cls_token_id=3, sep_token_id=4, local_attention=6
        ),
    ),
    "gpt2": gpt2,
    "opt": lambda: build(
        transformers.OPTForCausalLM,
        transformers.OPTConfig(**SIZES | IDS, ffn_dim=D_FF, word_embed_proj_dim=D_MODEL),
    ),
    "llama": lambda: build(transformers.LlamaForCausalLM, transformers.LlamaConfig(**GROUPED)),
    "mistral": lambda: build(
        transformers.MistralModel, transformers.MistralConfig(**GROUPED, sliding_window=5)
    ),
    "gemma2": lambda: build(
        transformers.Gemma2ForCausalLM,
        transformers.Gemma2Config(
            **GROUPED, sliding_window=5, attn_logit_softcapping=2.0, query_pre_attn_scalar=11
        ),
    ),
    "gpt_oss": _gpt_oss,
    "t5": _t5,
    "bart": lambda: build(transformers.BartForConditionalGeneration, transformers.BartConfig(**BOTH)),
    "marian": lambda: build(transformers.MarianModel, transformers.MarianConfig(**BOTH)),
}
"""By name, a function that builds the family's model."""

OTHERS: dict[str, Callable[[], Any]] = {
    "gpt_neox": lambda: build(transformers.GPTNeoXForCausalLM, transformers.GPTNeoXConfig(**SIZES | IDS)),
    "olmo2": lambda: build(transformers.Olmo2ForCausalLM, transformers.Olmo2Config(**GROUPED)),
    "gpt_oss": _gpt_oss,
    "camembert": lambda: build(
        transformers.CamembertForMaskedLM, transformers.CamembertConfig(**SIZES | IDS)
    ),
    "mamba": lambda: build(
        transformers.MambaForCausalLM,
        transformers.MambaConfig(vocab_size=VOCAB, hidden_size=12, num_hidden_layers=2, state_size=3),
    ),
}
"""The same of types that no family of regard's own is for."""


def saved(folder: Path, model: Any, **fields: Any) -> Path:
    """A folder with a model, a tokenizer of words, and some fields of config.json changed."""
    model.save_pretrained(folder)
    write_tokenizer(folder, VOCAB)
    config = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def inputs(model: Any, *, padding: str = "right", source: int = 13, target: int = 7) -> dict[str, Tensor]:
    """Two texts of `source` and `source` - 4 tokens, and what a decoder reads, as transformers takes them."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(10, VOCAB, (2, source), generator=generator)
    real = torch.ones(2, source, dtype=torch.bool)
    if padding == "right":
        real[1, source - 4 :] = False
    elif padding == "left":
        real[1, :4] = False
    given = {"input_ids": ids.masked_fill(~real, 0), "attention_mask": real.long()}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.randint(10, VOCAB, (2, target), generator=generator)
    return given


def call(network: Any, given: dict[str, Tensor], **kwargs: Any) -> Any:
    """The same input, as a network of regard takes it."""
    with torch.no_grad():
        return network(
            given["input_ids"],
            mask=given["attention_mask"].bool(),
            decoder_token_ids=given.get("decoder_input_ids"),
            **kwargs,
        )


def untouched(model: Any, given: dict[str, Tensor], **kwargs: Any) -> Any:
    """What the model itself makes of it."""
    with torch.no_grad():
        return model(**given, **kwargs)
