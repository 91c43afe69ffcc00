"""Fields of config.json that are passed over: those alone that transformers neither declares nor reads."""

import inspect
import json
import shutil
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import config_fields
import pytest
import torch
import transformers

import regard
from parity.conftest import Workshop
from parity.families import ENTRIES, PLAINLY
from parity.families_entry import save
from parity.harness import run_theirs
from regard.checkpoints import IGNORED_FIELDS
from regard.checkpoints._fields import known_fields
from regard.core.errors import CheckpointError
from regard.models import family_of

pytestmark = pytest.mark.usefixtures("quiet")

STRAY = {"_model_name_or_path": "a model", "unk_token_id": 0, "x-of-nobody": [True, {"a": 1.5}]}


def test_the_file_has_what_the_installed_transformers_knows() -> None:
    package = find_spec("transformers")
    assert package is not None
    assert package.origin is not None
    kept = json.loads(config_fields.DATA.read_text("utf-8"))
    for name, names in config_fields.known_fields(Path(package.origin).parent).items():
        assert set(names) <= set(kept[name].split()), "run scripts/config_fields.py"


@pytest.mark.parametrize("name", PLAINLY)
def test_what_a_configuration_declares_is_known(name: str) -> None:
    entry = ENTRIES[name]
    config, known = entry.make_config(), known_fields(entry.name)
    assert known is not None
    taken = inspect.signature(type(config).__init__).parameters.keys() - {"self"}
    ours = {each.metadata["hf"].name for each in fields(family_of(entry.name).config) if each.metadata}
    aliases = config.attribute_map
    declared = {*entry.fields, *config.to_dict(), *aliases, *aliases.values(), *taken, *ours}
    assert declared - IGNORED_FIELDS <= known


@pytest.mark.parametrize("name", PLAINLY)
def test_what_a_run_reads_off_its_configuration_is_known(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a name that is not there: `getattr(config, "x", None)`."""
    entry, read = ENTRIES[name], set()
    plain = transformers.PreTrainedConfig.__getattribute__

    def noting(config: transformers.PreTrainedConfig, key: str) -> object:
        read.add(key)
        return plain(config, key)

    monkeypatch.setattr(transformers.PreTrainedConfig, "__getattribute__", noting)
    for label in entry.classes:
        model = entry.build(label)
        if label == "base":  # how a model is written, read and run is the same code under a head
            saved = save(model, entry.shape, tmp_path)
            entry.classes[label].from_pretrained(tmp_path)
            run_theirs(saved, entry.inputs("base").all()["plain"], gradients=False)
    monkeypatch.undo()
    read.discard(
        "type_vocab_size" if "type_vocab_size" not in entry.fields else ""
    )  # families_entry reads it
    read = {
        key for key in read if not key.startswith("__") and not callable(getattr(entry.config, key, None))
    }
    known = known_fields(entry.name)
    assert known is not None
    assert len(read) > 20
    assert sorted(read - IGNORED_FIELDS - known) == []


FOREIGN = {
    key: value
    for name in PLAINLY
    for key, value in ENTRIES[name].make_config().to_dict().items()
    if type(value) in (bool, int, float, str)
}
"""Fields of all families, with a value that means something in one of them."""


@pytest.mark.parametrize("name", PLAINLY)
def test_stray_fields_are_named_and_change_nothing(workshop: Workshop, name: str, tmp_path: Path) -> None:
    """Nor do those of other families: `transformers` gives the same numbers with all of them at once."""
    saved = workshop.saved(name)
    folder = shutil.copytree(saved.folder, tmp_path / "stray")
    given = json.loads((folder / "config.json").read_text("utf-8"))
    known = known_fields(ENTRIES[name].name)
    assert known is not None
    inert = IGNORED_FIELDS | family_of(ENTRIES[name].name).config.IGNORED_FIELDS
    stray = STRAY | {key: value for key, value in FOREIGN.items() if key not in known | inert}

    def with_fields(**more: object) -> Path:
        (folder / "config.json").write_text(json.dumps(given | more), "utf-8")
        return folder

    model = regard.load(with_fields(**stray))
    assert model.config == workshop.model(name).config
    (note,) = model.loaded.notes
    assert len(stray) > 50
    assert all(f"{key} = " in note for key in stray), note
    again = type(saved.model).from_pretrained(folder, attn_implementation="eager")
    theirs = save(again, saved.shape, tmp_path / "theirs")
    batch = ENTRIES[name].inputs("base").all()["plain"]
    after, before = (run_theirs(each, batch, gradients=False).hidden for each in (theirs, saved))
    for kind, states in before.items():
        assert all(map(torch.equal, after[kind], states)), kind
    for field in ("quantization_config", "auto_map", "per_layer_config"):
        with pytest.raises(
            CheckpointError, match=rf"may change the result: {field} = |'{field}' must be None, "
        ):
            regard.load(with_fields(**stray, **{field: {"a": 1}}))
