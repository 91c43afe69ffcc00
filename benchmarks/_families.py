"""The models that bench_models runs: real sizes, few layers, random weights, one entry a `model_type`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

VOCAB = 8192
"""Enough to look rows up in; a larger table costs the disk, and a forward pass without a head nothing."""


@dataclass(frozen=True, kw_only=True)
class Rival:
    """How transformers runs a family.

    Args:
        like: the checkpoint whose sizes these are.
        config: the class of its configuration.
        sizes: fields of it.
        depth: the fields that count layers.
        kinds: how many layers it takes to have one of every kind.
        layer_types: the kinds by name, in turns, where the configuration lists them.
        attention: the fastest implementation that is exact; "eager" where "sdpa" is not there, or has no cap.
        both: whether it has an encoder and a decoder.
    """

    like: str
    config: Any
    sizes: Mapping[str, Any]
    depth: tuple[str, ...] = ("num_hidden_layers",)
    kinds: int = 1
    layer_types: tuple[str, ...] = ()
    attention: str = "sdpa"
    both: bool = False

    def save(self, folder: Path, layers: int) -> None:
        """Build it with so many layers and random weights, and save it."""
        torch.manual_seed(0)
        depths: dict[str, Any] = dict.fromkeys(self.depth, layers)
        if self.layer_types:
            depths["layer_types"] = [self.layer_types[i % len(self.layer_types)] for i in range(layers)]
        config = self.config(**{"vocab_size": VOCAB, **self.sizes, **depths})
        transformers.AutoModel.from_config(config).save_pretrained(folder)

    def load(self, folder: Path, dtype: torch.dtype) -> Any:
        """The model of transformers, ready to run."""
        model = transformers.AutoModel.from_pretrained(
            folder, dtype=dtype, attn_implementation=self.attention
        )
        return model.eval()


_BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_SMALL_DECODER = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}
_BART = {
    "d_model": 768,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "use_cache": False,
}
_BOTH = ("encoder_layers", "decoder_layers")
_GEMMA = {
    **_SMALL_DECODER,
    "hidden_size": 640,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "intermediate_size": 2048,
}

RIVALS: dict[str, Rival] = {
    "bert": Rival(like="bert-base-uncased", config=transformers.BertConfig, sizes=_BASE),
    "distilbert": Rival(
        like="distilbert-base-uncased",
        config=transformers.DistilBertConfig,
        sizes={"dim": 768, "n_heads": 12, "hidden_dim": 3072},
        depth=("n_layers",),
    ),
    "roberta": Rival(
        like="roberta-base",
        config=transformers.RobertaConfig,
        sizes={**_BASE, "max_position_embeddings": 514, "pad_token_id": 1},
    ),
    "electra": Rival(
        like="electra-small-discriminator",
        config=transformers.ElectraConfig,
        sizes={
            "hidden_size": 256,
            "embedding_size": 128,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
    ),
    "mpnet": Rival(
        like="all-mpnet-base-v2",
        config=transformers.MPNetConfig,
        sizes={**_BASE, "max_position_embeddings": 514, "pad_token_id": 1},
        attention="eager",
    ),
    "modernbert": Rival(
        like="ModernBERT-base",
        config=transformers.ModernBertConfig,
        sizes={
            "hidden_size": 768,
            "num_attention_heads": 12,
            "intermediate_size": 1152,
            "local_attention": 128,
            "global_attn_every_n_layers": 2,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "cls_token_id": 1,
            "sep_token_id": 2,
        },
        kinds=2,
    ),
    "deberta-v2": Rival(
        like="deberta-v3-base",
        config=transformers.DebertaV2Config,
        sizes={
            **_BASE,
            "relative_attention": True,
            "position_buckets": 256,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": "p2c|c2p",
            "position_biased_input": False,
            "max_position_embeddings": 512,
            "type_vocab_size": 0,
        },
        attention="eager",
    ),
    "gpt2": Rival(
        like="gpt2",
        config=transformers.GPT2Config,
        sizes={"n_embd": 768, "n_head": 12, "use_cache": False},
        depth=("n_layer",),
    ),
    "llama": Rival(
        like="SmolLM2-135M",
        config=transformers.LlamaConfig,
        sizes={
            **_SMALL_DECODER,
            "hidden_size": 576,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
        },
    ),
    "mistral": Rival(
        like="Mistral-7B-v0.1, at the width of SmolLM2-135M",
        config=transformers.MistralConfig,
        sizes={
            **_SMALL_DECODER,
            "hidden_size": 576,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "intermediate_size": 1536,
            "sliding_window": 4096,
        },
    ),
    "qwen2": Rival(
        like="Qwen2.5-0.5B",
        config=transformers.Qwen2Config,
        sizes={
            **_SMALL_DECODER,
            "hidden_size": 896,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "intermediate_size": 4864,
        },
    ),
    "qwen3": Rival(
        like="Qwen3-0.6B",
        config=transformers.Qwen3Config,
        sizes={
            **_SMALL_DECODER,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 3072,
        },
    ),
    "gemma2": Rival(
        like="gemma-2, at the width of gemma-3-270m",
        config=transformers.Gemma2Config,
        sizes={**_GEMMA, "sliding_window": 4096},
        kinds=2,
        attention="eager",
    ),
    "gemma3_text": Rival(
        like="gemma-3-270m",
        config=transformers.Gemma3TextConfig,
        sizes={
            **_GEMMA,
            "sliding_window": 512,
        },
        kinds=2,
        layer_types=("sliding_attention", "full_attention"),
    ),
    "t5": Rival(
        like="t5-small",
        config=transformers.T5Config,
        sizes={"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_heads": 8, "use_cache": False},
        depth=("num_layers", "num_decoder_layers"),
        both=True,
    ),
    "bart": Rival(like="bart-base", config=transformers.BartConfig, sizes=_BART, depth=_BOTH, both=True),
    "marian": Rival(
        like="opus-mt-en-de",
        config=transformers.MarianConfig,
        sizes={
            **_BART,
            "d_model": 512,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 8,
            "encoder_ffn_dim": 2048,
            "decoder_ffn_dim": 2048,
            "scale_embedding": True,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
            "max_position_embeddings": 512,
        },
        depth=_BOTH,
        both=True,
    ),
}
