"""Folders of types that no family is for: transformers' model, whole or refused, and no code of theirs."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from lens_models import OTHERS, saved
from regard.checkpoints import read_tensors, write_tensors
from regard.core.errors import CheckpointError, InputError, MissingExtraError
from regard.models import load_checkpoint
from unit.models.folders import write

WEIGHTS = "model.safetensors"
IDS = torch.tensor([[3, 5, 7, 9, 11]])


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        regard.load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "mamba"])
def test_the_numbers_are_those_of_transformers(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    made = OTHERS[name]()
    folder = saved(tmp_path, made)
    capfd.readouterr()
    model = regard.load(folder)
    assert capfd.readouterr() == ("", "")  # none of transformers' bars and reports
    with torch.no_grad():
        assert torch.equal(model(IDS).logits, made(IDS).logits)
    assert repr(model).startswith(f"Model({str(folder)!r}, {name} through the lens, 2 layers")
    [note] = model.loaded.notes
    assert note == f"{name} is no family of regard's own: transformers runs it, seen through the lens"
    assert model.loaded.source.kind == "folder"
    assert model.trace("w3 w5").tokens == ["w3", "w5"]


def test_weights_are_converted(tmp_path: Path) -> None:
    model = regard.load(saved(tmp_path, OTHERS["gpt_neox"]()), dtype=torch.bfloat16)
    assert {each.dtype for each in model.network.parameters()} == {torch.bfloat16}


def test_a_family_of_regards_own_is_loaded_by_regard(tmp_path: Path) -> None:
    model = regard.load(write(tmp_path))
    assert (model.network.foreign, model.loaded.notes) == (None, ())


def test_weights_that_are_not_stored_are_not_drawn(tmp_path: Path) -> None:
    folder = saved(tmp_path, OTHERS["gpt_neox"]())
    transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")).save_pretrained(
        folder
    )
    reader, name = read_tensors(folder), "gpt_neox.layers.1.mlp.dense_4h_to_h.bias"
    stored = {each: reader.read(each).clone() for each in reader.names()}
    for other in ({"more": stored[name]}, {name: stored[name][:-1]}):
        write_tensors({each: stored[each] for each in stored if each != name} | other, folder / WEIGHTS)
        told = refused(folder)
        assert f"would draw them at random: {name}. In Python, as you see fit: hf_model = " in told
    write_tensors(stored | {"more": stored[name]}, folder / WEIGHTS)
    assert regard.load(folder).loaded.left_out == ("more",)
    # What the error tells to type works.
    names: dict[str, Any] = {"transformers": transformers, "regard": regard}
    exec(told.partition("as you see fit: ")[2], names)
    assert names["model"].trace("w3 w5").tokens == ["w3", "w5"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"num_hidden_layers": 10**9}, "the field 'num_hidden_layers' must be at most 1000"),
        ({"text_config": {"num_hidden_layers": 10**9}}, "the field 'num_hidden_layers' must be at most 1000"),
        ({"hidden_size": -3}, "transformers cannot load it ("),
        ({"num_attention_heads": 0}, "transformers cannot load it ("),
        ({"vocab_size": 5}, "random: gpt_neox.embed_in.weight, lm_head.weight. In"),
        ({"model_type": "bertha"}, f"transformers {transformers.__version__} has no such type either."),
        ({"model_type": "bertha", "auto_map": {}}, ", trust_remote_code=True); model = regard.lens(hf_model"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, fields: dict[str, Any], told: str) -> None:
    assert told in refused(saved(tmp_path, OTHERS["gpt_neox"](), **fields))


def test_a_folder_names_neither_code_nor_kernels(tmp_path: Path) -> None:
    folder = saved(
        tmp_path,
        OTHERS["gpt_neox"](),
        attn_implementation="someone/kernel",
        _experts_implementation="someone/kernel",
        auto_map={"AutoModelForCausalLM": "code.Model"},
    )
    (folder / "code.py").write_text("raise SystemExit('it was run')")
    adapter = {"base_model_name_or_path": "someone/else", "peft_type": "LORA"}
    (folder / "adapter_config.json").write_text(json.dumps(adapter))
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate/generate.py").write_text("raise SystemExit('it was run')")
    assert regard.load(folder).network.hf_model.config._attn_implementation == "sdpa"


def test_what_the_lens_refuses_is_refused(tmp_path: Path) -> None:
    assert refused(saved(tmp_path, OTHERS["mamba"]())).startswith(
        f"{tmp_path}: MambaForCausalLM has no attention: "
    )


def test_what_is_for_families_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(tmp_path, OTHERS["gpt_neox"]())
    with pytest.raises(InputError, match="leave_out must be empty for 'gpt_neox'"):
        regard.load(folder, leave_out=["x"])
    with pytest.raises(CheckpointError, match=r"model_type must be one of .*; got 'gpt_neox'"):
        load_checkpoint(folder)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"'gpt_neox' is no family .* run: pip install transformers$"):
        regard.load(folder)
