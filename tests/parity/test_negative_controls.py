"""What the comparison must notice: a network with one fault is not the same as transformers'."""

import re
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from parity.conftest import Workshop
from parity.families import ENTRIES, PLAINLY
from parity.families_controls import attention_names, faults_of, head_faults, spread_heads
from parity.families_inputs import Batch
from parity.harness import Run, assert_same_gradients, assert_same_run, run_ours, run_theirs
from tolerances import PARITY_FP32

pytestmark = pytest.mark.usefixtures("quiet")

EVERY = {"heads", "scale", "norm-eps"}


def fresh(workshop: Workshop, name: str, label: str = "base") -> Any:
    """Modules and tensors of its own: faults set attributes of these, and change no other object."""
    network, own = workshop.network(name, label), ("_modules", "_parameters", "_buffers")
    others = (value for of in network.modules() for key, value in vars(of).items() if key not in own)
    return deepcopy(network, {id(value): value for value in others})


def plain(name: str) -> Batch:
    return ENTRIES[name].inputs("base").all()["plain"]


def with_form(form: str) -> list[str]:
    return [name for name in PLAINLY if form in ENTRIES[name].inputs("base").all()]


def differs(ours: Run, theirs: Run, batch: Batch) -> bool:
    """Whether the comparison finds numbers apart. Anything else that it finds is raised."""
    try:
        assert_same_run(ours, theirs, batch, PARITY_FP32, gradients=False)
    except AssertionError as error:
        if "apart" not in str(error):
            raise
        return True
    return False


def refuse(network: Any, theirs: Run, batch: Batch, given: Batch | None = None) -> None:
    ours = run_ours(network, batch if given is None else given, gradients=False)
    assert differs(ours, theirs, batch)


def in_between(module: str, network: Any) -> bool:
    """Whether it lies in a layer with others before and after it, which are compared in the same way."""
    found = re.match(r"(encoder|decoder)?\.?layers\.(\d+)\.", module)
    if found is None:
        return False
    kind = found[1] or next(iter(network.prefixes))
    return 0 < int(found[2]) < network.depth(kind) - 1


@pytest.mark.parametrize("name", PLAINLY)
def test_every_fault_is_noticed(workshop: Workshop, name: str) -> None:
    entry, batch = ENTRIES[name], plain(name)
    theirs = run_theirs(workshop.saved(name), batch, gradients=False)
    network = workshop.network(name)
    assert_same_run(run_ours(network, batch, gradients=False), theirs, batch, PARITY_FP32, gradients=False)
    faults = faults_of(network)
    # What the entry says that the family has is there to be broken, and what is there it says.
    claimed = EVERY | entry.features | ({"causal"} if entry.shape != "encoder" else set())
    assert claimed <= faults.keys()
    assert faults.keys() <= claimed | {"positions", "norms"}
    assert "positions" in faults or "relative-bias" in faults
    unnoticed = []
    for subject, of_subject in faults.items():
        for what, fault in of_subject.items():
            if in_between(what, network):
                continue
            broken = fresh(workshop, name)
            fault(broken)
            ours = run_ours(broken, batch, gradients=False)
            if not differs(ours, theirs, batch):
                unnoticed.append(f"{subject}: {what}")
    assert not unnoticed


@pytest.mark.parametrize("name", [name for name in PLAINLY if "gqa" in ENTRIES[name].features])
def test_the_right_tiling_of_grouped_heads_passes(workshop: Workshop, name: str) -> None:
    """So that the wrong tiling, which `spread_heads` makes as well, fails for the tiling alone."""
    batch, network = plain(name), fresh(workshop, name)
    for attention in attention_names(network):
        spread_heads(network.get_submodule(attention), interleave=True)
    theirs = run_theirs(workshop.saved(name), batch, gradients=False)
    assert_same_run(run_ours(network, batch, gradients=False), theirs, batch, PARITY_FP32, gradients=False)


@pytest.mark.parametrize("name", PLAINLY)
def test_a_missing_padding_mask(workshop: Workshop, name: str) -> None:
    entry, network = ENTRIES[name], workshop.network(name)
    batches = entry.inputs("base").all()
    # What follows a decoder's tokens is hidden by the causal mask: only padding on the left would be missed.
    forms = ["left-padded", "holes"] + (["right-padded"] if entry.shape != "decoder" else [])
    for form in forms:
        batch = batches[form]
        refuse(
            network,
            run_theirs(workshop.saved(name), batch, gradients=False),
            batch,
            replace(batch, mask=None),
        )
    if entry.shape == "encoder-decoder":
        batch = batches["left-left"]
        theirs = run_theirs(workshop.saved(name), batch, gradients=False)
        refuse(network, theirs, batch, replace(batch, target_mask=None))
        refuse(network, theirs, batch, replace(batch, mask=None))


@pytest.mark.parametrize("name", with_form("packed"))
def test_texts_packed_without_a_mask_between_them(workshop: Workshop, name: str) -> None:
    batch = ENTRIES[name].inputs("base").all()["packed"]
    theirs = run_theirs(workshop.saved(name), batch, gradients=False)
    refuse(workshop.network(name), theirs, batch, replace(batch, packed=(batch.token_ids.shape[1],)))


@pytest.mark.parametrize("name", with_form("pair"))
def test_dropped_token_types(workshop: Workshop, name: str) -> None:
    batch = ENTRIES[name].inputs("base").all()["pair"]
    theirs = run_theirs(workshop.saved(name), batch, gradients=False)
    refuse(workshop.network(name), theirs, batch, replace(batch, token_types=None))


@pytest.mark.parametrize("name", PLAINLY)
def test_a_gradient_that_is_off(workshop: Workshop, name: str) -> None:
    """Each parameter's gradient is looked at: a part in ten thousand of its measure too much is noticed."""
    batch = plain(name)
    theirs = run_theirs(workshop.saved(name), batch)
    ours = run_ours(workshop.network(name), batch)
    assert_same_gradients(ours, theirs, PARITY_FP32)
    largest = max(value.abs().max() for value in theirs.gradients.values())
    for key, gradient in ours.gradients.items():
        off = gradient.clone(memory_format=torch.contiguous_format)
        off.view(-1)[-1] += 1e-4 * largest
        with pytest.raises(AssertionError, match=f"gradient of {key}"):
            assert_same_gradients(
                Run(logits=None, pooled=None, hidden={}, weights={}, gradients=ours.gradients | {key: off}),
                # It stands first: the others, the same each time, need not be compared again.
                replace(theirs, gradients={key: theirs.gradients[key]} | theirs.gradients),
                PARITY_FP32,
            )


@pytest.mark.parametrize("name", [name for name in PLAINLY if "language-model" in ENTRIES[name].classes])
def test_faults_of_the_head(workshop: Workshop, name: str) -> None:
    batch = plain(name)
    saved = workshop.saved(name, "language-model")
    theirs = run_theirs(saved, batch, gradients=False)
    faults = head_faults(workshop.network(name, "language-model"))
    assert faults.keys() == ENTRIES[name].head_features
    for fault in faults.values():
        broken = fresh(workshop, name, "language-model")
        with torch.no_grad():
            fault(broken)
        refuse(broken, theirs, batch)
