"""The heads of every family against transformers: logits and gradients, tied and untied."""

import pytest
import torch
from safetensors.torch import load_file

import regard
from parity.conftest import Workshop
from parity.families import ENTRIES, OF_PARAMETERS, PLAINLY, SOME, UNDER_TEST
from parity.families_inputs import Batch
from parity.harness import assert_same_run, ours_again, run_ours, run_theirs
from regard.checkpoints import to_hf
from regard.models import family_of
from tolerances import FP64, PARITY_FP32, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")

HEADS = [
    (name, label)
    for name in UNDER_TEST
    for label in ENTRIES[name].classes
    if label != "base" and label not in ENTRIES[name].left_out
]
# A classifier of texts looks for a token, so it meets every form; the others take each token by itself. What
# a mask does to the body under them, test_families.py tells.
INPUTS = [
    (name, label, form)
    for name, label in HEADS
    for form in ENTRIES[name].inputs(label).of_head(label)
    if form == "right-pad-id"
    or (label == "sequence" and name in PLAINLY)
    or (form == "plain" and name in SOME)
]
TOLERANCES = {torch.float32: PARITY_FP32, torch.float64: FP64}
# As in test_families.py; what single precision adds in a head is no other from family to family.
SINGLE = {label: name for name, label in reversed(HEADS)}
COMPUTED = [
    *((*given, torch.float64) for given in INPUTS),
    *((name, label, "plain", torch.float32) for label, name in SINGLE.items()),
]


def batch_of(name: str, label: str, form: str) -> Batch:
    return ENTRIES[name].inputs(label).of_head(label)[form]


@pytest.mark.parametrize(("name", "label", "form", "dtype"), COMPUTED)
def test_logits_and_gradients(
    workshop: Workshop, name: str, label: str, form: str, dtype: torch.dtype
) -> None:
    tol = TOLERANCES[dtype]
    saved, batch = workshop.saved(name, label, dtype), batch_of(name, label, form)
    network = workshop.network(name, label, dtype)
    ours, theirs = run_ours(network, batch), run_theirs(saved, batch)
    assert (theirs.logits is None) == (label == "encoder")  # a stack by itself, no head
    assert_same_run(ours, theirs, batch, tol)
    if ours.logits is not None and ours.logits.ndim == 3:
        kind = "encoder" if batch.target_ids is None else "decoder"
        real = batch.real(kind)
        assert_close_to_largest(ours_again(network, batch).logits[real], ours.logits[real], tol)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (name, label)
        for name, label in HEADS
        if label in ("masked-lm", "language-model") and ENTRIES[name].can_untie and name in OF_PARAMETERS
    ],
)
def test_tied_where_it_is_not_by_itself_and_untied_where_it_is(
    workshop: Workshop, name: str, label: str
) -> None:
    is_tied = not ENTRIES[name].make_config().tie_word_embeddings
    saved = workshop.saved(name, label, torch.float64, tie_word_embeddings=is_tied)
    network, batch = regard.load(saved.folder).network, batch_of(name, label, "plain")
    ours, theirs = run_ours(network, batch), run_theirs(saved, batch)
    assert_same_run(ours, theirs, batch, FP64)
    stored = load_file(saved.folder / "model.safetensors")
    matrices = [key for key, tensor in stored.items() if tensor.shape[:1] == (53,) and tensor.ndim == 2]
    assert len(matrices) == (1 if is_tied else 2)
    written = to_hf(network, family_of(ENTRIES[name].name).keys)
    assert written.keys() == stored.keys()
    assert all(torch.equal(written[key], stored[key]) for key in stored)


@pytest.mark.parametrize(("label", "name"), SINGLE.items())
def test_logits_are_not_worked_out_unasked(workshop: Workshop, name: str, label: str) -> None:
    network, batch = workshop.network(name, label), batch_of(name, label, "plain")
    output = network(batch.token_ids, decoder_token_ids=batch.target_ids, logits=False)
    assert output.logits is None
