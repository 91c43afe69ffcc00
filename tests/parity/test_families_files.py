"""Every family on disk: weights go both ways bit for bit, in one file, in shards, and in an old pickle."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import regard
from parity.conftest import Workshop
from parity.families import ENTRIES, OF_PARAMETERS, PLAINLY, SOME, UNDER_TEST
from parity.families_entry import Saved, save
from parity.harness import assert_same_run, run_ours, run_theirs
from regard.checkpoints import to_hf, write_tensors
from regard.models import family_of
from tolerances import PARITY_FP32

pytestmark = pytest.mark.usefixtures("quiet")

CLASSES = [(name, label) for name in UNDER_TEST for label in ENTRIES[name].classes]
KEPT = [(name, label) for name, label in CLASSES if label not in ENTRIES[name].left_out]


def assert_same(saved: Saved, folder: Path, name: str, label: str = "base") -> regard.Model:
    """What lies in the folder is the same model to regard, which is given."""
    form = "right-padded" if label == "base" else "right-pad-id"
    batches = ENTRIES[name].inputs(label)
    batch = (batches.all() if label == "base" else batches.of_head(label))[form]
    theirs = run_theirs(saved, batch, gradients=False)
    model = regard.load(folder)
    ours = run_ours(model.network, batch, gradients=False)
    assert_same_run(ours, theirs, batch, PARITY_FP32, gradients=False)
    return model


@pytest.mark.parametrize(
    ("name", "label", "dtype"),
    [
        *((name, label, torch.float32) for name, label in KEPT if name in OF_PARAMETERS),
        *((name, "base", half) for name in PLAINLY for half in (torch.bfloat16, torch.float16)),
    ],
)
def test_weights_go_back_bit_for_bit(workshop: Workshop, name: str, label: str, dtype: torch.dtype) -> None:
    saved = workshop.saved(name, label, dtype)
    keys = family_of(ENTRIES[name].name).keys
    stored = load_file(saved.folder / "model.safetensors")
    stored = {key: tensor for key, tensor in stored.items() if not keys.buffer(key)}  # Marian's sinusoids
    written = to_hf(workshop.network(name, label, dtype), keys)
    assert written.keys() == stored.keys()
    for key, tensor in stored.items():
        assert written[key].dtype == tensor.dtype
        assert torch.equal(written[key], tensor), key


# A variation's body is written with its head.
@pytest.mark.parametrize(
    ("name", "label"), [(name, label) for name, label in KEPT if name in PLAINLY or label != "base"]
)
def test_a_model_that_regard_writes_is_read_by_transformers(
    workshop: Workshop, name: str, label: str, tmp_path: Path
) -> None:
    entry, saved = ENTRIES[name], workshop.saved(name, label)
    network, family = workshop.network(name, label), family_of(entry.name)
    (tmp_path / "config.json").write_text(json.dumps(network.config.to_hf()), encoding="utf-8")
    write_tensors(to_hf(network, family.keys), tmp_path / "model.safetensors")
    again, report = entry.classes[label].from_pretrained(
        tmp_path, attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values()), report
    assert type(again.config) is type(saved.model.config)
    theirs, written = saved.model.state_dict(), again.state_dict()
    assert written.keys() == theirs.keys()
    for key, tensor in theirs.items():
        assert torch.equal(written[key], tensor), key
    # Every field that was set otherwise than by default, dropout included.
    for field in {*entry.fields, "layer_types"} - set(entry.unwritten):
        before, after = getattr(saved.model.config, field, None), getattr(again.config, field, None)
        assert before is None or says(after, before), f"{field}: {after} instead of {before}"
    if label in ("sequence", "token"):
        assert again.config.num_labels == saved.model.config.num_labels
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["architectures"] == [
        entry.classes[label].__name__
    ]
    inputs = entry.inputs(label)
    batch = (inputs.all() if label == "base" else inputs.of_head(label))["right-pad-id"]
    before = run_theirs(saved, batch, gradients=False)
    after = run_theirs(
        Saved(model=again, shape=saved.shape, folder=tmp_path, stored=saved.stored), batch, gradients=False
    )
    assert_same_run(after, before, batch, PARITY_FP32, gradients=False)  # not 0: memory lies otherwise
    assert regard.load(tmp_path).config == network.config


def says(after: Any, before: Any) -> bool:
    """Whether a field says what it said; RoPE's parameters may say more, such as what is the default."""
    if isinstance(before, dict) and isinstance(after, dict):
        return all(says(after.get(key), value) for key, value in before.items())
    return bool(after == before)


@pytest.mark.parametrize("name", SOME)
def test_shards(workshop: Workshop, name: str, tmp_path: Path) -> None:
    theirs = workshop.saved(name)
    folder = save(theirs.model, theirs.shape, tmp_path, max_shard_size="8KB").folder
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    assert not (folder / "model.safetensors").exists()
    assert_same(theirs, folder, name)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (name, label)
        for name, label in KEPT
        if name in PLAINLY and label in ("base", "language-model", "masked-lm")
    ],
)
def test_an_old_pickle(workshop: Workshop, name: str, label: str, tmp_path: Path) -> None:
    """A `pytorch_model.bin` with tied tensors under each of their names, and all buffers."""
    saved = workshop.saved(name, label)
    (tmp_path / "config.json").write_bytes((saved.folder / "config.json").read_bytes())
    state = saved.model.state_dict() | dict(saved.model.named_buffers())
    torch.save(state, tmp_path / "pytorch_model.bin")
    model = assert_same(saved, tmp_path, name, label)
    assert model.loaded.left_out == ()
    before, after = workshop.network(name, label).state_dict(), model.network.state_dict()
    assert before.keys() <= after.keys()  # a pickle also has the constants, such as Marian's sinusoids
    for key in before:
        assert torch.equal(before[key], after[key]), key


@pytest.mark.parametrize(("name", "label"), [pair for pair in CLASSES if pair not in KEPT])
def test_a_head_that_regard_lacks_is_left_out_and_said(workshop: Workshop, name: str, label: str) -> None:
    saved, entry = workshop.saved(name, label), ENTRIES[name]
    model = regard.load(saved.folder)
    prefix = saved.model.base_model_prefix
    assert list(model.loaded.left_out) == sorted(
        key for key in saved.stored if not key.startswith(f"{prefix}.")
    )
    batch = entry.inputs("base").all()["right-padded"]
    theirs = Saved(model=saved.model.base_model, shape=saved.shape, folder=saved.folder, stored=saved.stored)
    ours = run_ours(model.network, batch, gradients=False)
    assert ours.logits is None
    assert_same_run(ours, run_theirs(theirs, batch, gradients=False), batch, PARITY_FP32, gradients=False)


# --- old forms of BERT


def test_bert_for_pretraining_keeps_its_pooler(workshop: Workshop, tmp_path: Path) -> None:
    entry = ENTRIES["bert"]
    theirs = transformers.BertForPreTraining(entry.make_config(_attn_implementation="eager")).eval()
    saved = save(theirs, "encoder", tmp_path)
    model = regard.load(tmp_path)
    assert any(key.startswith("cls.seq_relationship") for key in model.loaded.left_out)
    batch = entry.inputs("base").all()["types-padded"]
    pooled = model.network(batch.token_ids, mask=batch.mask, token_types=batch.token_types).pooled
    assert pooled is not None
    base = Saved(model=theirs.bert, shape="encoder", folder=tmp_path, stored=saved.stored)
    expected = run_theirs(base, batch, gradients=False).pooled
    assert expected is not None
    torch.testing.assert_close(pooled, expected, rtol=0, atol=PARITY_FP32)


def test_bert_without_a_pooler(tmp_path: Path) -> None:
    config = ENTRIES["bert"].make_config(_attn_implementation="eager")
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    saved = save(theirs, "encoder", tmp_path)
    model = regard.load(tmp_path)
    assert model.network(torch.tensor([[3, 1, 4]])).pooled is None
    assert_same(saved, tmp_path, "bert")


def test_bert_with_gamma_and_beta(workshop: Workshop, tmp_path: Path) -> None:
    """What TensorFlow called a norm's parameters, the stored positions, and the prefix, as in old files."""
    saved = workshop.saved("bert")
    old = {"bert.embeddings.position_ids": torch.arange(23)[None]}
    for key, tensor in load_file(saved.folder / "model.safetensors").items():
        key = key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[f"bert.{key}"] = tensor
    assert sum(key.endswith(".gamma") for key in old) == 1 + 2 * 2
    save_file(old, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes((saved.folder / "config.json").read_bytes())
    assert_same(saved, tmp_path, "bert")
