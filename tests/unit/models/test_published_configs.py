"""Checkpoints that many people use are read, and what would change their numbers is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.checkpoints import Fields
from regard.core.errors import CheckpointError, InputError
from regard.models import FAMILIES, family_of
from regard.models.families.t5 import T5Config
from unit.models.folders import OWN
from unit.models.published import DECODERS, ENCODERS
from unit.models.published_pairs import PAIRS

PUBLISHED = ENCODERS | DECODERS | PAIRS

# What is known of each model, from its paper or its card.
SIZES: dict[str, dict[str, Any]] = {
    "bert-base-uncased": {
        "d_model": 768,
        "num_layers": 12,
        "num_heads": 12,
        "d_ff": 3072,
        "max_seq_len": 512,
    },
    "bert-base-multilingual-cased": {"vocab_size": 119547, "num_token_types": 2},
    "dslim/bert-base-NER": {"head": "token", "num_labels": 9},
    "cross-encoder/ms-marco-MiniLM-L-6-v2": {"head": "sequence", "num_labels": 1, "d_model": 384},
    "distilbert-base-uncased": {"num_layers": 6, "num_heads": 12, "d_ff": 3072},
    "distilbert-base-uncased-finetuned-sst-2-english": {"head": "sequence", "num_labels": 2},
    "roberta-base": {"max_seq_len": 512, "num_token_types": 1, "norm_eps": 1e-5},
    "xlm-roberta-base": {"max_seq_len": 512, "vocab_size": 250002},
    "google/electra-small-discriminator": {"d_embedding": 128, "d_model": 256, "head": None},
    "google/electra-small-generator": {"d_embedding": 128, "d_model": 256, "head": "masked-lm"},
    "sentence-transformers/all-mpnet-base-v2": {"max_seq_len": 512, "num_buckets": 32},
    "answerdotai/ModernBERT-base": {"num_layers": 22, "pooling": "mean", "local_attention": 128},
    "microsoft/deberta-v3-base": {"num_buckets": 256, "terms": ("p2c", "c2p"), "convolution": None},
    "microsoft/mdeberta-v3-base": {"vocab_size": 251000, "max_distance": None},
    "microsoft/deberta-v2-xlarge": {"num_layers": 24, "num_heads": 24, "d_model": 1536},
    "gpt2": {"d_model": 768, "d_ff": 3072, "max_seq_len": 1024},
    "distilgpt2": {"num_layers": 6, "head": "language-model"},
    "gpt2-medium": {"num_layers": 24, "d_ff": 4096},
    "meta-llama/Llama-2-7b-hf": {"num_kv_heads": 32, "head_dim": 128, "max_seq_len": 4096},
    "huggyllama/llama-7b": {"num_kv_heads": 32, "head_dim": 128, "max_seq_len": 2048},
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": {"num_kv_heads": 4, "head_dim": 64},
    "microsoft/Phi-3-mini-4k-instruct": {"num_kv_heads": 32, "head_dim": 96, "sliding_window": 2047},
    "meta-llama/Llama-3.2-1B": {"num_kv_heads": 8, "head_dim": 64, "tie_word_embeddings": True},
    "HuggingFaceTB/SmolLM2-135M": {"num_heads": 9, "num_kv_heads": 3, "head_dim": 64},
    "mistralai/Mistral-7B-v0.1": {"sliding_window": 4096, "layer_types": ("sliding_attention",) * 32},
    "mistralai/Mistral-7B-v0.3": {"sliding_window": None, "layer_types": ("full_attention",) * 32},
    "Qwen/Qwen2-0.5B": {"qkv_bias": True, "output_bias": False, "sliding_window": None},
    "Qwen/Qwen2.5-0.5B": {"max_seq_len": 32768, "head_dim": 64, "layer_types": ("full_attention",) * 24},
    "Qwen/Qwen3-0.6B": {"qk_norm": True, "head_dim": 128, "qkv_bias": False},
    "google/gemma-2-2b": {"softcap": 50.0, "final_softcap": 30.0, "query_scalar": 256},
    "google/gemma-3-1b-it": {
        "softcap": None,
        "sliding_window": 512,
        "layer_types": ((("sliding_attention",) * 5 + ("full_attention",)) * 5)[:26],
    },
    "google/embeddinggemma-300m": {"is_bidirectional": True, "head": None, "d_model": 768},
    "t5-small": {"activation": "relu", "is_gated": False, "scale_decoder_outputs": True, "max_distance": 128},
    "google/t5-v1_1-base": {"activation": "gelu_new", "is_gated": True, "scale_decoder_outputs": False},
    "google/flan-t5-base": {"num_layers": 12, "num_decoder_layers": 12, "is_gated": True},
    "facebook/bart-base": {"num_layers": 6, "d_model": 768, "head": None},
    "facebook/bart-large-cnn": {"vocab_size": 50264, "norm_first": False, "scale_embedding": False},
    "facebook/bart-large-mnli": {"head": "sequence", "num_labels": 3},
    "sshleifer/distilbart-cnn-12-6": {"num_layers": 12, "num_decoder_layers": 6},
    "facebook/mbart-large-cc25": {"norm_first": True, "decoder_start_token_id": None},
    "facebook/mbart-large-50-many-to-many-mmt": {"vocab_size": 250054, "scale_embedding": True},
    "Helsinki-NLP/opus-mt-en-de": {
        "has_sinusoids": True,
        "decoder_start_token_id": 58100,
        "max_seq_len": 512,
    },
}

# Fields of the files above at another value: each changes numbers, or asks for what regard does not have.
WRONG: list[tuple[str, str, Any]] = [
    ("bert-base-uncased", "position_embedding_type", "relative_key"),
    ("bert-base-multilingual-cased", "directionality", "left"),
    ("gpt2-medium", "n_special", 3),
    ("HuggingFaceTB/SmolLM2-135M", "rope_interleaved", True),
    ("Qwen/Qwen2.5-0.5B", "use_mrope", True),
    ("microsoft/Phi-3-mini-4k-instruct", "auto_map", {"AutoModelForCausalLM": "modeling_other.Model"}),
    ("google/gemma-3-1b-it", "attn_logit_softcapping", 50.0),
    ("google/gemma-3-1b-it", "architectures", ["Gemma3ForTokenClassification"]),
    ("t5-small", "dense_act_fn", "gelu"),
    ("t5-small", "is_gated_act", True),
    ("google/t5-v1_1-base", "dense_act_fn", "gelu"),
    ("google/t5-v1_1-base", "is_gated_act", False),
    ("facebook/bart-large-cnn", "normalize_before", True),
    ("Helsinki-NLP/opus-mt-en-de", "static_position_embeddings", False),
]

# A head counts where its tensors are stored.
TENSORS = {
    "dslim/bert-base-NER": ["classifier.weight"],
    "cross-encoder/ms-marco-MiniLM-L-6-v2": ["classifier.weight"],
    "distilbert-base-uncased-finetuned-sst-2-english": ["pre_classifier.weight"],
    "google/electra-small-generator": ["generator_lm_head.weight"],
} | {name: ["decoder.final_layer_norm.weight"] for name in PAIRS}


def read(name: str, **changes: Any) -> Any:
    values = PUBLISHED[name] | changes
    fields = Fields(file=Path("config.json"), values=values)
    return family_of(values["model_type"]).config.from_hf(fields, TENSORS.get(name, []))


def test_bart_without_a_probability_of_dropping_attention() -> None:
    assert read("facebook/bart-base", attention_dropout=None).attention_dropout_p == 0.0


def test_llama_without_groups_may_say_so_by_null() -> None:
    assert read("huggyllama/llama-7b", num_key_value_heads=None).num_kv_heads == 32


@pytest.mark.parametrize(
    ("changes", "pad", "start"),
    [
        ({"pad_token_id": 7, "decoder_start_token_id": 5}, 7, 5),
        ({"pad_token_id": None, "decoder_start_token_id": 5}, None, 5),
        ({"pad_token_id": None, "decoder_start_token_id": 0}, None, 0),
    ],
)
def test_t5_may_begin_with_another_token_than_it_pads_with(
    changes: dict[str, Any], pad: int | None, start: int
) -> None:
    config = read("t5-small", **changes)
    written = config.to_hf()
    assert (config.pad_token_id, config.decoder_start_token_id) == (pad, start)
    assert (written["pad_token_id"], written["decoder_start_token_id"]) == (pad, start)


def test_t5_begins_with_padding_where_no_field_says() -> None:
    fields = {name: value for name, value in PAIRS["t5-small"].items() if name != "decoder_start_token_id"}
    config = T5Config.from_hf(Fields(file=Path("config.json"), values=fields | {"pad_token_id": 7}), [])
    assert config.decoder_start_token_id == 7


@pytest.mark.parametrize(("value", "kind"), [(256, int), (256.0, int), (67.5, float)])
def test_the_scale_of_gemma_is_written_as_it_is(value: float, kind: type) -> None:
    written = read("google/gemma-2-2b", query_pre_attn_scalar=value).to_hf()["query_pre_attn_scalar"]
    assert (written, type(written)) == (value, kind)


def test_gemma3_has_no_classifier_of_tokens_to_write() -> None:
    config = replace(read("google/gemma-3-1b-it"), head="token")
    with pytest.raises(InputError, match=r"head must be one .* for gemma3_text: .*; got 'token'"):
        config.to_hf()
    of_gemma2 = replace(read("google/gemma-2-2b"), head="token").to_hf()
    assert of_gemma2["architectures"] == ["Gemma2ForTokenClassification"]


def test_every_family_is_there() -> None:
    assert {fields["model_type"] for fields in PUBLISHED.values()} == set(FAMILIES) - OWN
    assert set(SIZES) == set(PUBLISHED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_is_read_and_what_is_written_is_read_again(name: str) -> None:
    config = read(name)
    assert {key: getattr(config, key) for key in SIZES[name]} == SIZES[name]
    family = family_of(PUBLISHED[name]["model_type"])
    fields = Fields(file=Path("config.json"), values=config.to_hf())
    assert family.config.from_hf(fields, TENSORS.get(name, [])) == config


@pytest.mark.parametrize(("name", "field", "value"), WRONG)
def test_another_value_of_a_field_that_counts_is_refused(name: str, field: str, value: Any) -> None:
    with pytest.raises(CheckpointError, match=field):
        read(name, **{field: value})


@pytest.mark.parametrize(("activation", "gated"), [("relu", False), ("gelu_new", True)])
def test_what_transformers_writes_beside_the_activation_of_t5(activation: str, gated: bool) -> None:
    name = "google/t5-v1_1-base" if gated else "t5-small"
    config = read(name, dense_act_fn=activation, is_gated_act=gated)
    assert (config.activation, config.is_gated) == (activation, gated)
