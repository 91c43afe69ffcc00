"""Every family against transformers: forward, hidden states, attention, gradients, in every type."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from parity.conftest import Workshop
from parity.families import ENTRIES, PLAINLY, SOME, UNDER_TEST
from parity.families_inputs import Batch
from parity.families_oracle import build
from parity.harness import assert_same_run, ours_again, run_ours, run_theirs
from regard.core.errors import InputError
from regard.models import FAMILIES, write_checkpoint
from tolerances import BF16, FP64, PARITY_FP32, assert_close_to_largest
from unit.models.folders import OWN

pytestmark = pytest.mark.usefixtures("quiet")

# A family meets every form. A variation of it meets those that show a setting: no mask, the longest text,
# padding, and several texts in one row. A mask that hides nothing is read before any family's own code.
OF_VARIATIONS = {"plain", "longest", "right-padded", "packed"}
OF_SOME = {"batch", "mask-of-ones"}
INPUTS = [
    (name, form)
    for name in UNDER_TEST
    for form in ENTRIES[name].inputs("base").all()
    if form in OF_VARIATIONS or name in SOME or (name in PLAINLY and form not in OF_SOME)
]
# The backward pass has ways of its own for no mask, for padding and for texts in one row.
WITH_GRADIENTS = {"plain", "right-padded", "right-right", "packed"}
TOLERANCES = {torch.float32: PARITY_FP32, torch.float64: FP64}
# Double precision tells whether the numbers are right, in every form; single what its rounding adds.
COMPUTED = [
    *((name, form, torch.float64) for name, form in INPUTS),
    *((name, "right-padded", torch.float32) for name in PLAINLY),
]


def batch_of(name: str, form: str) -> Batch:
    return ENTRIES[name].inputs("base").all()[form]


def test_every_family_is_under_test() -> None:
    assert set(FAMILIES) - OWN <= {entry.name for entry in ENTRIES.values()}


@pytest.mark.parametrize(("name", "form", "dtype"), COMPUTED)
def test_everything_computed(workshop: Workshop, name: str, form: str, dtype: torch.dtype) -> None:
    tol = TOLERANCES[dtype]
    saved, batch = workshop.saved(name, dtype=dtype), batch_of(name, form)
    network = workshop.network(name, dtype=dtype)
    assert {parameter.dtype for parameter in network.parameters()} == {dtype}
    gradients = form in WITH_GRADIENTS
    ours, theirs = (
        run(of, batch, gradients=gradients) for run, of in ((run_ours, network), (run_theirs, saved))
    )
    assert_same_run(ours, theirs, batch, tol, gradients=gradients)
    # Without listeners the network may take another way.
    again, kind = ours_again(network, batch), "encoder" if batch.target_ids is None else "decoder"
    real = batch.real(kind)
    assert_close_to_largest(again.last_hidden_state[real], list(ours.hidden.values())[-1][-1][real], tol)


@pytest.mark.parametrize("name", UNDER_TEST)
def test_bfloat16(workshop: Workshop, name: str) -> None:
    # The truth is the very same weights in double precision.
    entry, batch = ENTRIES[name], batch_of(name, "right-padded")
    saved = workshop.saved(name, dtype=torch.bfloat16)
    truth = replace(saved, model=_in(torch.float64, entry, saved.model))
    network = workshop.network(name, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in network.parameters()} == {torch.bfloat16}
    ours = run_ours(network, batch, gradients=False)
    assert all(hidden.dtype == torch.bfloat16 for layers in ours.hidden.values() for hidden in layers)
    assert_same_run(ours, run_theirs(truth, batch, gradients=False), batch, BF16, gradients=False)


# Two layouts of tensors, and constants in the file, with two stacks.
@pytest.mark.parametrize("name", ["bert", "gpt2", "marian"])
def test_halves_on_disk(workshop: Workshop, name: str) -> None:
    """Half precision is read as what it says; bfloat16 from the same file is above."""
    entry, batch = ENTRIES[name], batch_of(name, "right-padded")
    saved = workshop.saved(name, dtype=torch.float16)
    theirs = replace(saved, model=_in(torch.float32, entry, saved.model))
    network = regard.load(saved.folder, dtype=torch.float32).network
    ours = run_ours(network, batch, gradients=False)
    assert_same_run(ours, run_theirs(theirs, batch, gradients=False), batch, PARITY_FP32, gradients=False)


def _in(dtype: torch.dtype, entry: Any, model: Any) -> Any:
    """The same weights in a wider type. Made in it, not converted: see `build`."""
    wide = build(type(model), entry.make_config(), dtype=dtype)
    wide.load_state_dict(model.state_dict())
    return wide


@pytest.mark.parametrize("name", PLAINLY)
def test_converted_while_loading(workshop: Workshop, name: str) -> None:
    batch = batch_of(name, "right-padded")
    wide = regard.load(workshop.saved(name).folder, dtype=torch.float64).network
    theirs = run_theirs(workshop.saved(name, dtype=torch.float64), batch)
    assert_same_run(run_ours(wide, batch), theirs, batch, FP64)


@pytest.mark.parametrize("name", [*PLAINLY, "deberta-v2-conv"])
def test_an_item_without_any_token(workshop: Workshop, name: str) -> None:
    """Nothing to attend to: zero context and finite gradients here; the other items as in transformers."""
    saved = workshop.saved(name, dtype=torch.float64)
    batch = batch_of(name, "right-padded")
    assert batch.mask is not None
    mask = batch.mask.clone()
    mask[2] = False
    empty = replace(batch, mask=mask)
    if batch.target_ids is not None:  # its decoder runs on nothing, so its loss is not to be compared
        target = torch.ones_like(batch.target_ids, dtype=torch.bool)
        target[2] = False
        empty = replace(empty, target_mask=target)
    ours = run_ours(workshop.network(name, dtype=torch.float64), empty)
    assert_same_run(ours, run_theirs(saved, empty), empty, FP64)
    for kind in ours.weights:
        assert all(not weights[2].any() for weights in ours.weights[kind]), kind
    assert all(hidden.isfinite().all() for layers in ours.hidden.values() for hidden in layers)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (name, label)
        for name in ("bart", "mbart", "marian")
        for label in ENTRIES[name].classes
        if label != "sequence"  # reads the decoder as the base does
    ],
)
def test_encoder_and_decoder_with_tables_of_their_own(
    workshop: Workshop, name: str, label: str, tmp_path: Path
) -> None:
    """As transformers 5 saves them where the output is not tied: and a third that no code reads."""
    batch = batch_of(name, "right-right")
    saved = workshop.saved(name, label, torch.float64, tie_word_embeddings=False)
    model = regard.load(saved.folder)
    network: Any = model.network
    assert [left.removeprefix("model.") for left in model.loaded.left_out] == ["shared.weight"]
    theirs = run_theirs(saved, batch)
    assert_same_run(run_ours(network, batch), theirs, batch, FP64)
    # Written and read again, here and there, it is the same; what the third table holds changes nothing.
    write_checkpoint(network, tmp_path / "again")
    again = regard.load(tmp_path / "again").network
    assert again.config == network.config
    assert_same_run(run_ours(again, batch, gradients=False), theirs, batch, FP64, gradients=False)
    read, report = type(saved.model).from_pretrained(
        tmp_path / "again", attn_implementation="eager", dtype=torch.float64, output_loading_info=True
    )
    assert {each.removeprefix("model.") for each in report["missing_keys"]} <= {"shared.weight"}
    there = run_theirs(replace(saved, model=read), batch, gradients=False)
    assert_same_run(there, theirs, batch, FP64, gradients=False)


@torch.no_grad()
@pytest.mark.parametrize("name", PLAINLY)
def test_padding_in_front_is_refused_where_it_would_be_counted(workshop: Workshop, name: str) -> None:
    """Else, and with the positions that the error names, each text is what it is alone."""
    network: Any = workshop.network(name, dtype=torch.float64)
    form = "left-left" if ENTRIES[name].shape == "encoder-decoder" else "left-padded"
    batch = batch_of(name, form)
    stacks = [network.stack(kind) for kind in network.prefixes]
    masks = [batch.mask] if batch.target_mask is None else [batch.mask, batch.target_mask]
    given: dict[str, Any] = {"mask": batch.mask, "token_types": batch.token_types}
    if batch.target_mask is not None:
        given |= {"decoder_token_ids": batch.target_ids, "decoder_mask": batch.target_mask}
    for side, stack, mask in zip(("", "decoder_"), stacks, masks, strict=False):
        if stack.embeddings.positions is not None:
            first = stack.numbering.first
            plus = rf" \+ {first}" if first else ""
            wanted = rf"^{side}positions must be given where {side}mask begins .*clamp\(min=0\){plus}, or"
            with pytest.raises(InputError, match=wanted):
                network(batch.token_ids, **given)
            assert mask is not None
            given[f"{side}positions"] = (mask.cumsum(1) - 1).clamp(min=0) + first
    whole = network(batch.token_ids, **given).last_hidden_state
    for row in range(len(whole)):
        ids, *target = (
            of[row : row + 1, mask[row]]  # type: ignore[index]
            for of, mask in zip((batch.token_ids, batch.target_ids), masks, strict=False)
        )
        alone = network(ids, decoder_token_ids=target[0] if target else None).last_hidden_state
        # Of rotary positions the angles are float32, so that a shift of them rounds otherwise.
        assert_close_to_largest(whole[row, masks[-1][row]][None], alone, PARITY_FP32)  # type: ignore[index]


def test_padding_that_is_told_by_its_id_may_stand_in_front(workshop: Workshop) -> None:
    """RoBERTa counts the tokens that are none; only what hides under the mask must be such."""
    network: Any = workshop.network("roberta", dtype=torch.float64)
    batch = batch_of("roberta", "left-pad-id")
    assert batch.mask is not None
    found = network(batch.token_ids, mask=batch.mask).last_hidden_state
    positions = (batch.mask.cumsum(1) - 1).clamp(min=0) + network.encoder.numbering.first
    wanted = network(batch.token_ids, mask=batch.mask, positions=positions).last_hidden_state
    assert_close_to_largest(found[batch.mask], wanted[batch.mask], FP64)


# What each name means is shown in tests/unit/blocks; here, that every family reads its field.
@pytest.mark.parametrize(
    "name", [name for name in UNDER_TEST if name == ENTRIES[name].name and ENTRIES[name].activation]
)
def test_activations(workshop: Workshop, name: str) -> None:
    field, batch = ENTRIES[name].activation, batch_of(name, "plain")
    assert field is not None
    saved = workshop.saved(name, dtype=torch.float64, **{field: "relu2"})
    ours = run_ours(regard.load(saved.folder).network, batch, gradients=False)
    assert_same_run(ours, run_theirs(saved, batch, gradients=False), batch, FP64, gradients=False)
