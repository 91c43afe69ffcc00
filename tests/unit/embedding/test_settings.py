"""The files that sentence-transformers writes beside a checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.checkpoints import write_tensors
from regard.core.errors import CheckpointError, InputError
from regard.embedding import Dense, Norm, SentenceSettings, Unit, read_sentence_settings

OLD = "sentence_transformers.models."
NEW = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}
NO_LIMIT = 1000000000000000019884624838656


def module(kind: str, path: str | None = None) -> dict[str, Any]:
    return {"path": f"_{kind}" if path is None else path, "type": kind if "." in kind else OLD + kind}


def stored(folder: Path, *kinds: str | dict[str, Any], **files: Any) -> Path:
    """A folder with modules of these kinds; `pooling` is the config of the second, other files by name."""
    modules = [
        module(kind, "" if number == 0 else None) if isinstance(kind, str) else kind
        for number, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "_Pooling").mkdir()
    (folder / "_Pooling/config.json").write_text(
        json.dumps(files.pop("pooling", {"pooling_mode_mean_tokens": True}))
    )
    for name, fields in files.items():
        (folder / f"{name}.json").write_text(fields if isinstance(fields, str) else json.dumps(fields))
    return folder


def of(folder: Path, **files: Any) -> SentenceSettings:
    return read_sentence_settings(stored(folder, "Transformer", "Pooling", **files))


def test_a_folder_without_any_has_the_mean(tmp_path: Path) -> None:
    assert SentenceSettings().pooling == ("mean",)
    settings = read_sentence_settings(tmp_path)
    assert settings.pooling == ("mean",)
    assert settings.steps == ()
    assert settings.max_seq_length is None
    assert settings.include_prompt
    assert settings.prompt() == ""


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"architectures": ["GPT2ForCausalLM"]}, "last"),
        ({"architectures": ["GPT2ForCausalLM"], "is_causal": False}, "mean"),
        ({"architectures": ["BertForMaskedLM"]}, "mean"),
        ({"architectures": []}, "mean"),
        ({}, "mean"),
    ],
)
def test_a_language_model_has_its_last_token(tmp_path: Path, config: dict[str, Any], pooling: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_sentence_settings(tmp_path).pooling == (pooling,)


@pytest.mark.parametrize(
    ("fields", "pooling"),
    [
        (
            {
                "word_embedding_dimension": 6,
                "pooling_mode_cls_token": True,
                "pooling_mode_mean_tokens": False,
            },
            ["cls"],
        ),
        ({"pooling_mode_max_tokens": True}, ["max"]),
        ({"pooling_mode_mean_tokens": True}, ["mean"]),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, ["mean_sqrt_len"]),
        ({"pooling_mode_weightedmean_tokens": True}, ["weighted_mean"]),
        ({"pooling_mode_lasttoken": True}, ["last"]),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, ["cls", "mean"]),
        ({"pooling_mode_mean_tokens": False}, ["mean"]),
        ({"embedding_dimension": 6, "pooling_mode": "lasttoken"}, ["last"]),
        ({"pooling_mode": ["weightedmean", "cls"]}, ["weighted_mean", "cls"]),
        ({"pooling_mode": "max", "pooling_mode_cls_token": True}, ["max"]),
    ],
)
def test_every_way_to_name_a_pooling(tmp_path: Path, fields: dict[str, Any], pooling: list[str]) -> None:
    settings = of(tmp_path, pooling=fields)
    assert list(settings.pooling) == pooling
    assert settings.include_prompt


def test_the_steps_after_the_pooling(tmp_path: Path) -> None:
    for kind, config in (
        ("Dense", {"in_features": 6, "out_features": 2, "bias": False}),
        ("LayerNorm", {"dimension": 2}),
    ):
        (tmp_path / f"_{kind}").mkdir()
        (tmp_path / f"_{kind}/config.json").write_text(json.dumps(config))
    write_tensors({"linear.weight": torch.randn(2, 6)}, tmp_path / "_Dense/model.safetensors")
    norm = {"norm.weight": torch.randn(2), "norm.bias": torch.randn(2)}
    write_tensors(norm, tmp_path / "_LayerNorm/model.safetensors")
    kinds = ("Transformer", "Pooling", "Dropout", "Dense", "LayerNorm", NEW["Normalize"])
    settings = read_sentence_settings(stored(tmp_path, *kinds))
    assert [type(step) for step in settings.steps] == [Dense, Norm, Unit]
    assert settings.width(6) == 2
    with pytest.raises(InputError, match="d_model is 7, but the Dense after the pooling does not take"):
        settings.width(7)


def test_the_newest_names(tmp_path: Path) -> None:
    kinds = [module(NEW["Transformer"], ""), module(NEW["Pooling"], "_Pooling"), module(NEW["Normalize"])]
    transformer = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": "token_embeddings",
    }
    folder = stored(
        tmp_path, *kinds, sentence_bert_config=transformer, tokenizer_config={"model_max_length": 128}
    )
    settings = read_sentence_settings(folder)
    assert settings.max_seq_length == 128
    assert settings.steps == (Unit(),)


@pytest.mark.parametrize(
    ("stated", "tokenizer", "limit"),
    [
        ({"max_seq_length": 256, "do_lower_case": False}, {"model_max_length": 512}, 256),
        ({"max_seq_length": None}, {"model_max_length": 512}, 512),
        ({}, {"model_max_length": NO_LIMIT}, None),
        ({}, {"model_max_length": 1e30}, None),
        ({}, {"model_max_length": None}, None),
        ({}, {}, None),
    ],
)
def test_the_limit(
    tmp_path: Path, stated: dict[str, Any], tokenizer: dict[str, Any], limit: int | None
) -> None:
    assert of(tmp_path, sentence_bert_config=stated, tokenizer_config=tokenizer).max_seq_length == limit


def test_an_older_name_of_the_transformers_file(tmp_path: Path) -> None:
    assert of(tmp_path, sentence_roberta_config={"max_seq_length": 77}).max_seq_length == 77


def test_lower_case_letter_by_letter(tmp_path: Path) -> None:
    settings = of(tmp_path, sentence_bert_config={"do_lower_case": True})
    assert settings.prepared("İΣ", "A: ") == "a: i̇σ"
    assert SentenceSettings().prepared("İΣ", "A: ") == "A: İΣ"


def test_prompts(tmp_path: Path) -> None:
    fields = {
        "__version__": {"sentence_transformers": "3.0.0"},
        "prompts": {"query": "Find: ", "document": None},
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
        "truncate_dim": 3,
        "a_field_of_the_future": 1,
    }
    settings = of(tmp_path, config_sentence_transformers=fields, pooling={"include_prompt": False})
    assert settings.prompts == {"query": "Find: ", "document": ""}
    assert settings.prompt() == "Find: "
    assert settings.prompt(name="document") == ""
    assert settings.prompt(prompt="mine") == "mine"
    assert settings.truncate_dim == 3
    assert not settings.include_prompt
    with pytest.raises(InputError, match=r"\('query', 'document'\); got 'passage'"):
        settings.prompt(name="passage")
    with pytest.raises(InputError, match="cannot both"):
        settings.prompt(prompt="a", name="query")


CARDS = {
    "": (),
    "the Matryoshka loss, matryoshka_dims = [9]": (),
    '```json\n{\n  "loss": "X",\n  "matryoshka_dims": [\n   8,\n   4,\n   2\n  ],\n  "weights": [1]}': (
        2,
        4,
        8,
    ),
    "{'matryoshka_dims': [8, 4]} {'matryoshka_dims': [4, 2]}": (4,),
}


@pytest.mark.parametrize("card", CARDS)
def test_the_card_names_what_vectors_may_be_cut_to(tmp_path: Path, card: str) -> None:
    (tmp_path / "README.md").write_text(card, "utf-8")
    assert of(tmp_path).dimensions == CARDS[card]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"pooling": {"pooling_mode": "attention"}},
            "_Pooling/config.json: the field 'pooling_mode' is 'attention'",
        ),
        ({"pooling": {"pooling_mode": []}}, "'pooling_mode' names no pooling"),
        ({"pooling": {"pooling_mode": 3}}, "'pooling_mode' must be a list; got 3"),
        ({"pooling": {"pooling_mode_cls_token": 1}}, "'pooling_mode_cls_token' must be true or false; got 1"),
        ({"pooling": {"pooling_mode_median_tokens": True}}, "pooling_mode_median_tokens = True"),
        ({"sentence_bert_config": {"max_seq_length": 0}}, "'max_seq_length' must be 1 or more; got 0"),
        ({"sentence_bert_config": {"max_seq_length": "256"}}, "'max_seq_length' must be a whole number"),
        ({"sentence_bert_config": "{"}, "sentence_bert_config.json: not valid JSON"),
        (
            {"sentence_bert_config": {"transformer_task": "fill-mask"}},
            "'transformer_task' must be 'feature-ex",
        ),
        ({"sentence_bert_config": {"query_length": 32}}, "'query_length' must be None, .* got 32"),
        ({"sentence_bert_config": {"model_args": {"rope": 2}}}, "model_args.rope = 2"),
        ({"sentence_bert_config": {"processing_kwargs": {"text": {}}}}, "processing_kwargs.text"),
        ({"sentence_bert_config": {"modality_config": {"message": {}}}}, "modality_config.message"),
        ({"sentence_bert_config": {"pooling": 1}}, "pooling = 1"),
        ({"tokenizer_config": {"model_max_length": -1}}, "'model_max_length' must be 1 or more; got -1"),
        ({"tokenizer_config": {"model_max_length": "512"}}, "'model_max_length' must be a whole number"),
        ({"config_sentence_transformers": {"prompts": {"q": 1}}}, "'prompts.q' must be a text; got 1"),
        (
            {"config_sentence_transformers": {"default_prompt_name": "q"}},
            "'default_prompt_name' is 'q'.*there are none",
        ),
        ({"config_sentence_transformers": {"truncate_dim": 0}}, "'truncate_dim' must be 1 or more"),
        (
            {"config_sentence_transformers": {"model_type": "SparseEncoder"}},
            "'model_type' must be .* got 'SparseEncoder'",
        ),
    ],
)
def test_what_would_change_the_result_is_refused(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        of(tmp_path, **files)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ("{}", "modules.json: .*the JSON must be a list; got object"),
        ("[1]", "modules.json: .*got int at 0"),
        ([], "must begin with Transformer and Pooling.*got none"),
        (["Transformer"], "got Transformer"),
        (["Pooling", "Transformer"], "got Pooling, Transformer"),
        (["StaticEmbedding", "Normalize"], "got StaticEmbedding, Normalize"),
        (
            ["Transformer", "Pooling", "CNN"],
            "the module 'CNN' after the pooling is not one that regard knows",
        ),
        (["Transformer", "Pooling", "Pooling"], "the module 'Pooling' after"),
        (["Transformer", module("mine.Pooling")], "'mine.Pooling' is code of its own"),
        (["Transformer", module("Pooling", "../elsewhere")], r"'\[1\].path' must stay inside"),
        (["Transformer", module("Pooling", "nowhere")], "nowhere/config.json: no such file"),
        (["Transformer", module("Pooling") | {"kwargs": ["task"]}], "takes arguments"),
        (["Transformer", module("Pooling") | {"path": None}], r"'\[1\].path' must be a text; got None"),
    ],
)
def test_modules_that_are_something_else_are_refused(tmp_path: Path, modules: Any, message: str) -> None:
    if isinstance(modules, str):
        (tmp_path / "modules.json").write_text(modules)
    else:
        stored(tmp_path, *modules)
    with pytest.raises(CheckpointError, match=message):
        read_sentence_settings(tmp_path)
