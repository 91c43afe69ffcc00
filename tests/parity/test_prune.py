"""Checkpoints without some heads: transformers loads them, and computes what regard and zeros do."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from parity.conftest import Workshop
from parity.families import ENTRIES, OF_PARAMETERS, PLAINLY, SOME
from parity.families_entry import Saved
from parity.harness import Run, assert_same_run, run_ours, run_theirs
from regard.models import Loaded, attentions, family_of, load_checkpoint, save_checkpoint
from regard.pruning import loads_in, prune
from tolerances import PARITY_FP32, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")

LABELS = ("base", "masked-lm", "language-model", "sequence", "token")
CLASSES = [
    (name, label)
    for name in OF_PARAMETERS
    for label in ENTRIES[name].classes
    if label in LABELS and label not in ENTRIES[name].left_out
]
BODIES = {*PLAINLY, "deberta-v2-unshared", "deberta-v2-c2p"}
"""Entries whose attention has parameters that no other has."""
ALL_HEADS = ("bart", "bert", "gpt2", "llama")
"""Entries under which every class of a kind of head is tried."""
BY_CODE = [
    (name, label)
    for name, label in CLASSES
    if family_of(ENTRIES[name].name).pruned_by_code
    and ((label == "base" and name in BODIES) or name in ALL_HEADS)
]
HOLDING = [
    (name, label)
    for name, label in CLASSES
    if name
    in {"gemma2", "gemma3_text", "llama", "mistral", "phi3", "qwen2", "qwen3", "t5", "t5-gated-untied"}
    and (label == "base" or name in ("llama", "t5"))
]
"""Those whose config.json has the size of a head."""


def unevenly(loaded: Loaded) -> dict[str, dict[int, list[int]]]:
    """Heads that go: others in each layer, a whole group or one of each group, none of some layer."""
    removed: dict[str, dict[int, list[int]]] = {}
    for part, layers in attentions(loaded.network).items():
        removed[part] = {}
        for layer, attention in enumerate(layers):
            size, groups = attention.num_heads // attention.num_kv_heads, attention.num_kv_heads
            group = (layer + len(part)) % groups
            if layer % 3 == 2:
                continue
            if size > 1 and layer % 2:
                removed[part][layer] = [each * size + each % size for each in range(groups)]
            else:
                removed[part][layer] = [group * size + member for member in range(size)]
    return removed


def evenly(loaded: Loaded) -> dict[str, dict[int, list[int]]]:
    """A group of every layer; the same in all of a stack, whose layers may share a table."""
    removed: dict[str, dict[int, list[int]]] = {}
    for part, layers in attentions(loaded.network).items():
        size = layers[0].num_heads // layers[0].num_kv_heads
        group = len(part) % layers[0].num_kv_heads
        removed[part] = {layer: [group * size + i for i in range(size)] for layer in range(len(layers))}
    return removed


def batch_of(name: str, label: str) -> Any:
    inputs = ENTRIES[name].inputs(label)
    return (inputs.all() if label == "base" else inputs.of_head(label))["right-pad-id"]


def by_code(folder: Path, name: str, label: str) -> Saved:
    """What transformers makes of the folder with the code that lies in it."""
    auto = json.loads((folder / "config.json").read_text(encoding="utf-8"))["auto_map"]
    (kind,) = [each for each in auto if (each == "AutoModel") == (label == "base")]
    model, report = getattr(transformers, kind).from_pretrained(
        folder, trust_remote_code=True, attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values()), report
    assert type(model).__module__.endswith("modeling_regard_pruned")
    return Saved(model=model, shape=ENTRIES[name].shape_of(label), folder=folder, stored=frozenset())


def theirs_zeroed(saved: Saved, name: str, loaded: Loaded, removed: Any, batch: Any) -> Run:
    """transformers' own full model, the heads' columns of the output projections set to zero."""
    keys, model = family_of(ENTRIES[name].name).keys, copy.deepcopy(saved.model)
    state = model.state_dict()
    prefixes = ("", f"{model.base_model_prefix}.")
    for part, layers in removed.items():
        stack = "decoder" if part == "cross" else part
        for layer, heads in layers.items():
            attention = attentions(loaded.network)[part][layer]
            sublayer = "cross_attention" if part == "cross" else "attention"
            bare, rule = keys.rule_of(f"{stack}.layers.{layer}.{sublayer}.output.weight")
            (weight,) = [state[prefix + bare] for prefix in prefixes if prefix + bare in state]
            columns = weight.t() if rule.transposed else weight
            size = columns.shape[1] // attention.num_heads
            for head in heads:
                columns[:, head * size : (head + 1) * size] = 0
    zeroed = Saved(model=model, shape=saved.shape, folder=saved.folder, stored=saved.stored)
    return run_theirs(zeroed, batch, gradients=False)


def assert_same_numbers(ours: Run, theirs: Run, batch: Any) -> None:
    """All but the weights, of which the full model has more."""
    assert_same_run(
        Run(logits=ours.logits, pooled=ours.pooled, hidden=ours.hidden, weights={}),
        Run(logits=theirs.logits, pooled=theirs.pooled, hidden=theirs.hidden, weights={}),
        batch,
        PARITY_FP32,
        gradients=False,
    )


@pytest.mark.parametrize(
    ("name", "label"),
    [(name, label) for name, label in CLASSES if (label == "base" and name in BODIES) or name in ALL_HEADS],
)
def test_it_computes_what_the_full_one_does_with_the_heads_at_zero(
    workshop: Workshop, name: str, label: str
) -> None:
    saved = workshop.saved(name, label)
    loaded, batch = workshop.model(name, label).loaded, batch_of(name, label)
    removed = unevenly(loaded)
    ours = run_ours(prune(loaded, removed).network, batch, gradients=False)
    assert_same_numbers(ours, theirs_zeroed(saved, name, loaded, removed, batch), batch)
    whole = run_theirs(saved, batch, gradients=False)
    with pytest.raises(AssertionError):  # the heads did something
        assert_same_numbers(ours, whole, batch)


@pytest.mark.parametrize("name", PLAINLY)
def test_another_head_gives_other_numbers(workshop: Workshop, name: str) -> None:
    saved = workshop.saved(name)
    loaded, batch = workshop.model(name).loaded, batch_of(name, "base")
    removed = unevenly(loaded)
    theirs = theirs_zeroed(saved, name, loaded, removed, batch)
    part = next(iter(removed))
    number = attentions(loaded.network)[part][0].num_heads
    size = number // attentions(loaded.network)[part][0].num_kv_heads
    wrong = copy.deepcopy(removed)
    wrong[part][0] = [(head + size) % number for head in removed[part][0]]
    ours = run_ours(prune(loaded, wrong).network, batch, gradients=False)
    with pytest.raises(AssertionError):
        assert_same_numbers(ours, theirs, batch)


@pytest.mark.parametrize(("name", "label"), BY_CODE)
def test_transformers_loads_other_heads_in_each_layer_by_the_code_beside_them(
    workshop: Workshop, name: str, label: str, tmp_path: Path
) -> None:
    loaded = workshop.model(name, label).loaded
    smaller = prune(loaded, unevenly(loaded))
    assert "transformers 5 with trust_remote_code=True" in loads_in(smaller)
    folder = save_checkpoint(smaller, tmp_path / "smaller")
    batch = batch_of(name, label)
    ours = run_ours(load_checkpoint(folder).network, batch, gradients=False)
    theirs = run_theirs(by_code(folder, name, label), batch, gradients=False)
    assert_same_run(ours, theirs, batch, PARITY_FP32, gradients=False)


@pytest.mark.parametrize("name", [*SOME, "bart"])
def test_transformers_refuses_them_without_the_code(workshop: Workshop, name: str, tmp_path: Path) -> None:
    loaded = workshop.model(name).loaded
    folder = save_checkpoint(prune(loaded, unevenly(loaded)), tmp_path / "smaller")
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        ENTRIES[name].classes["base"].from_pretrained(folder)


@pytest.mark.parametrize(("name", "label"), HOLDING)
def test_transformers_loads_as_many_heads_in_each_layer_as_it_is(
    workshop: Workshop, name: str, label: str, tmp_path: Path
) -> None:
    entry = ENTRIES[name]
    loaded = workshop.model(name, label).loaded
    removed = evenly(loaded)
    smaller = prune(loaded, removed)
    assert loads_in(smaller) == ("everything that takes sizes from config.json",)
    folder = save_checkpoint(smaller, tmp_path / "smaller")
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert not {"auto_map", "pruned_heads", "pruned_shapes"} & fields.keys()
    model, report = entry.classes[label].from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values()), report
    batch = batch_of(name, label)
    saved = Saved(model=model, shape=entry.shape_of(label), folder=folder, stored=frozenset())
    theirs = run_theirs(saved, batch, gradients=False)
    assert_same_run(
        run_ours(load_checkpoint(folder).network, batch, gradients=False),
        theirs,
        batch,
        PARITY_FP32,
        gradients=False,
    )
    assert_same_numbers(
        theirs, theirs_zeroed(workshop.saved(name, label), name, loaded, removed, batch), batch
    )


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_what_transformers_saves_again_is_the_same(workshop: Workshop, name: str, tmp_path: Path) -> None:
    loaded = workshop.model(name).loaded
    smaller = prune(loaded, evenly(loaded) if name == "t5" else unevenly(loaded))
    folder = save_checkpoint(smaller, tmp_path / "smaller")
    if name == "t5":
        model = ENTRIES[name].classes["base"].from_pretrained(folder)
    else:
        model = by_code(folder, name, "base").model
    model.save_pretrained(tmp_path / "again")
    before, after = (load_file(tmp_path / each / "model.safetensors") for each in ("smaller", "again"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    again = load_checkpoint(tmp_path / "again")
    assert again.network.config == smaller.network.config
    batch = batch_of(name, "base")
    if name != "t5":
        run_theirs(by_code(tmp_path / "again", name, "base"), batch, gradients=False)
    ours, theirs = (run_ours(each.network, batch, gradients=False) for each in (again, smaller))
    assert_same_run(ours, theirs, batch, PARITY_FP32, gradients=False)


def test_the_code_leaves_other_models_alone(workshop: Workshop, tmp_path: Path) -> None:
    """Having loaded one with the code, transformers may take its class for any BERT."""
    loaded = load_checkpoint(workshop.saved("bert").folder)
    by_code(save_checkpoint(prune(loaded, {0: [1]}), tmp_path / "smaller"), "bert", "base")
    saved = workshop.saved("bert")
    model = transformers.AutoModel.from_pretrained(saved.folder)
    token_ids = torch.tensor([[3, 1, 4]])
    assert_close_to_largest(
        model(token_ids).last_hidden_state, saved.model(token_ids).last_hidden_state, PARITY_FP32
    )
