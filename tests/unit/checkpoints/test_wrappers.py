"""What code around a network puts into the names of its tensors, and what of it is taken off."""

from pathlib import Path

import pytest
import torch

from regard.checkpoints import KeyMap, Rename, Shared, read_tensors, unwrapped, write_tensors

KEYMAP = KeyMap(
    rules=(
        Shared("shared.weight", ("tokens.weight",)),
        Rename("encoder.layer.{layer}.{part}", "layers.{layer}.{part}"),
        Rename("lm_head.{part}", "head.{part}"),
    ),
    prefixes=("model.",),
    heads=("lm_head.",),
)
BODY = ("shared.weight", "encoder.layer.0.weight", "encoder.layer.0.bias", "encoder.layer.1.weight")
HEADED = (*(f"model.{name}" for name in BODY), "lm_head.weight")
OTHER = "fc.weight"


def behind(prefix: str, names: tuple[str, ...] = BODY) -> tuple[str, ...]:
    return tuple(prefix + name for name in names)


@pytest.mark.parametrize(
    ("stored", "names", "taken"),
    [
        (BODY, BODY, ()),
        (HEADED, HEADED, ()),
        ((*BODY, OTHER), (*BODY, OTHER), ()),
        ((*behind("model."), OTHER), (*behind("model."), OTHER), ()),
        (behind("module."), BODY, ("module.",)),
        (behind("module.model."), behind("model."), ("module.",)),
        (behind("_orig_mod.module."), BODY, ("_orig_mod.", "module.")),
        (behind("model.", HEADED), HEADED, ("model.",)),
        (behind("_orig_mod.model.", HEADED), HEADED, ("_orig_mod.", "model.")),
        (behind("net.0.auto_model."), BODY, ("net.0.auto_model.",)),
        (behind("encoder."), BODY, ("encoder.",)),
        (
            ("shared.weight", *(f"encoder.layer.{i}._checkpoint_wrapped_module.weight" for i in range(3))),
            ("shared.weight", *(f"encoder.layer.{i}.weight" for i in range(3))),
            ("_checkpoint_wrapped_module.",),
        ),
        ((*behind("body."), "lm_head.weight"), (*BODY, "lm_head.weight"), ("body.",)),
        ((*behind("body."), OTHER), (*BODY, OTHER), ("body.",)),
        # Two networks, or two names that would become one: what is meant is not for us to say.
        ((*behind("query."), *behind("passage.")), (*behind("query."), *behind("passage.")), ()),
        ((*BODY, *behind("module.")), (*BODY, *behind("module.")), ()),
        ((*behind("body."), BODY[0]), (*behind("body."), BODY[0]), ()),
        # No wrapper's name: only part of a word.
        (("my_module.shared.weight",), ("shared.weight",), ("my_module.",)),
        (("a.b", "c.d"), ("a.b", "c.d"), ()),
    ],
)
def test_what_is_taken_off(
    tmp_path: Path, stored: tuple[str, ...], names: tuple[str, ...], taken: tuple[str, ...]
) -> None:
    values = {name: torch.tensor([float(place)]) for place, name in enumerate(stored)}
    write_tensors(values, tmp_path / "model.safetensors")
    reader, gone = unwrapped(read_tensors(tmp_path), KEYMAP)
    assert (reader.names(), gone) == (tuple(sorted(names)), taken)
    assert [reader.read(name).item() for name in names] == list(range(len(names)))
