"""Model folders of any family, tiny, and wrong in the ways that a test asks for."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.checkpoints import to_hf, write_tensors
from regard.core import Taps
from regard.models import Network, Output, family_of
from regard.models.families.bahdanau import BahdanauConfig
from regard.models.families.bart import BartConfig
from regard.models.families.bert import BertConfig
from regard.models.families.deberta import DebertaConfig
from regard.models.families.distilbert import DistilBertConfig
from regard.models.families.electra import ElectraConfig
from regard.models.families.expire_span import ExpireSpanConfig
from regard.models.families.gemma import GemmaConfig
from regard.models.families.gpt2 import Gpt2Config
from regard.models.families.llama import LlamaConfig
from regard.models.families.modernbert import ModernBertConfig
from regard.models.families.mpnet import MPNetConfig
from regard.models.families.perceiver import PerceiverConfig
from regard.models.families.roberta import RobertaConfig
from regard.models.families.sru import SruConfig
from regard.models.families.t5 import T5Config
from regard.positions import Rotary
from tolerances import FP64, assert_close_to_largest

_TYPES = ("sliding_attention", "full_attention")
_SIZES: dict[str, Any] = {"vocab_size": 31, "d_model": 15, "num_layers": 2, "num_heads": 3, "d_ff": 19}
_ENCODER = _SIZES | {"max_seq_len": 11}
_GROUPED = _SIZES | {
    "num_heads": 6,
    "num_kv_heads": 3,
    "head_dim": 10,
    "max_seq_len": 11,
    "layer_types": _TYPES,
}
_BART = _ENCODER | {
    "decoder_vocab_size": 31,
    "num_decoder_layers": 3,
    "num_decoder_heads": 5,
    "d_decoder_ff": 17,
    "decoder_start_token_id": 4,
}
_LLAMA = _GROUPED | {"layer_types": ("full_attention",) * 2, "rotary": Rotary(10, base=100.0)}
_GEMMA = _GROUPED | {
    "sliding_window": 3,
    "query_scalar": 7,
    "rope": dict.fromkeys(_TYPES, Rotary(10, base=100.0)),
}

CONFIGS: dict[str, Any] = {
    "bahdanau": BahdanauConfig(
        vocab_size=31, decoder_vocab_size=31, d_model=18, d_alignment=7, decoder_start_token_id=4
    ),
    "bart": BartConfig(model_type="bart", **_BART),
    "bert": BertConfig(**_ENCODER, num_token_types=4),
    "deberta-v2": DebertaConfig(**_ENCODER, d_embedding=15, num_buckets=4, max_distance=7),
    "distilbert": DistilBertConfig(**_ENCODER),
    "electra": ElectraConfig(**_ENCODER, d_embedding=7, num_token_types=4),
    "expire-span": ExpireSpanConfig(**(_ENCODER | {"d_model": 18}), max_span=5, ramp=2, pad_token_id=0),
    "gemma2": GemmaConfig(model_type="gemma2", **_GEMMA),
    "gemma3_text": GemmaConfig(model_type="gemma3_text", **_GEMMA, softcap=None, final_softcap=None),
    "gpt2": Gpt2Config(**_ENCODER),
    "llama": LlamaConfig(model_type="llama", **_LLAMA),
    "marian": BartConfig(model_type="marian", **_BART),
    "mbart": BartConfig(model_type="mbart", **_BART),
    "mistral": LlamaConfig(
        model_type="mistral", **(_LLAMA | {"layer_types": ("sliding_attention",) * 2}), sliding_window=3
    ),
    "modernbert": ModernBertConfig(
        **(
            _ENCODER
            | {"d_model": 30, "layer_types": _TYPES, "rope": dict.fromkeys(_TYPES, Rotary(10, base=100.0))}
        ),
        local_attention=4,
    ),
    "mpnet": MPNetConfig(**_ENCODER),
    "perceiver-io": PerceiverConfig(**_ENCODER, num_latents=5, d_latents=18, num_cross_heads=3, num_bands=2),
    "phi3": LlamaConfig(
        model_type="phi3", **(_LLAMA | {"rotary": Rotary(10, base=100.0, rotary_dim=6)}), norm_eps=1e-5
    ),
    "qwen2": LlamaConfig(model_type="qwen2", **_LLAMA, qkv_bias=True),
    "qwen3": LlamaConfig(model_type="qwen3", **_LLAMA, qk_norm=True),
    "roberta": RobertaConfig(model_type="roberta", **_ENCODER),
    "srupp": SruConfig(
        vocab_size=31, d_model=15, num_layers=2, num_heads=3, d_attention=9, max_seq_len=11, pad_token_id=0
    ),
    "t5": T5Config(**_SIZES, num_decoder_layers=3, head_dim=5),
    "xlm-roberta": RobertaConfig(model_type="xlm-roberta", **_ENCODER),
}
"""A tiny one of every family."""

OWN = frozenset({"bahdanau", "expire-span", "perceiver-io", "srupp"})
"""Families that `transformers` does not have: what they compute is tested in `tests/unit/blocks`."""

TRACED = sorted(set(CONFIGS) - {"perceiver-io"})
"""Families whose queries and keys are tokens."""

TARGET = torch.tensor([[4, 7, 1, 28, 2, 6, 30], [4, 0, 5, 5, 1, 3, 3]])
"""What a decoder beside an encoder reads."""

REMOVED = object()
"""As a field's or a tensor's value: take it out."""


def network(family: str, **changes: Any) -> Network:
    """A network with random weights, in evaluation mode."""
    from dataclasses import replace

    return family_of(family).build(replace(CONFIGS[family], **changes)).eval()


def call(net: Network, token_ids: Tensor, **arguments: Any) -> Output:
    """The network's output; a decoder beside an encoder reads `TARGET`."""
    if len(net.prefixes) == 2:
        arguments = {"decoder_token_ids": TARGET[: len(token_ids)]} | arguments
    output: Output = net(token_ids, **arguments)
    return output


def assert_points_in_order(net: Network, run: Callable[[Taps], object]) -> list[str]:
    """The names of the points are those that listeners hear of, in their order."""
    names = net.tap_names()
    assert len(names) == len(set(names))
    seen: list[str] = []
    run(Taps({name: partial(lambda name, value: seen.append(name), name) for name in names}))
    assert seen == names
    everything: list[object] = []
    run(Taps({"*": everything.append}))
    assert len(everything) == len(names)
    return names


def assert_points_are_written(net: Network, run: Callable[[Taps], Tensor], *, least: float) -> None:
    """What a listener returns goes on in the place of what it was given; `least` is what noise changes."""
    plain = run(Taps({}))
    for name in net.tap_names():
        if name.endswith(".inputs"):
            continue
        read = run(Taps({name: lambda value: None}))
        assert_close_to_largest(read, plain, FP64)
        assert torch.equal(run(Taps({name: lambda value: value.clone()})), read), name
        written = run(Taps({name: lambda value: value + torch.randn_like(value)}))
        assert (written - read).abs().max().item() > least * plain.abs().max().item(), name


def write(
    folder: Path,
    family: str = "bert",
    *,
    fields: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> Path:
    """Write a model, with some fields of config.json and some tensors (by their names on disk) changed."""
    made = network(family)
    config = made.config.to_hf() | dict(fields or {})
    stored: dict[str, Tensor] = to_hf(made, family_of(family).keys) | dict(tensors or {})
    config = {key: value for key, value in config.items() if value is not REMOVED}
    stored = {name: tensor for name, tensor in stored.items() if tensor is not REMOVED}
    stored = {name: tensor.to(dtype or tensor.dtype) for name, tensor in stored.items()}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_tensors(stored, folder / "model.safetensors")
    return folder


def write_tokenizer(folder: Path, size: int) -> None:
    """A tokenizer of so many words, w0, w1 and on."""
    import tokenizers
    from tokenizers import models, pre_tokenizers

    backend = tokenizers.Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.save(str(folder / "tokenizer.json"))


def ids(*rows: list[int]) -> Tensor:
    return torch.tensor(rows)


def write_chat(folder: Path) -> Path:
    """A Llama of random numbers that reads characters, with ChatML's tokens and template, without an end."""
    from regard.models import write_checkpoint
    from unit.text.chats import backend, tokenizer

    torch.manual_seed(3)
    made = network("llama", vocab_size=backend().get_vocab_size(), max_seq_len=601)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0.0, 0.4)
    return write_checkpoint(made, folder, tokenizer=tokenizer())
