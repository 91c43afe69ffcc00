"""A new head on an old body, as transformers puts one there, and files that lack what they name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from parity.conftest import Workshop
from parity.families import ENTRIES, PLAINLY
from regard.core.errors import CheckpointError, InputError
from regard.models import load_checkpoint, new_network, save_checkpoint
from regard.models.families.electra import ElectraConfig, share_embeddings

pytestmark = pytest.mark.usefixtures("quiet")

NAMES = ("no", "yes", "perhaps")
# A family's every head on its body.
PAIRS = [
    (name, head)
    for name in PLAINLY
    for head in ("masked-lm", "language-model", "sequence", "token", "replaced")
    if head in ENTRIES[name].classes
]


@pytest.mark.parametrize(("name", "head"), PAIRS)
def test_a_body_gets_a_head(workshop: Workshop, name: str, head: Any, tmp_path: Path) -> None:
    """Its own tensors stay; what transformers says that it lacks, and no more, is begun; it is written."""
    saved, entry = workshop.saved(name), ENTRIES[name]
    labels = NAMES if head in ("sequence", "token") else ()
    loaded = load_checkpoint(saved.folder, head=head, labels=labels, seed=3)
    config: Any = loaded.network.config
    assert (config.head, config.labels) == (head, labels)
    body = workshop.network(name).state_dict()
    state = loaded.network.state_dict()
    kept = [key for key in state if key in body]
    assert all(torch.equal(state[key], body[key]) for key in kept)
    assert set(loaded.begun) == {key for key in state if key not in body and "output.weight" not in key} | {
        key for key in loaded.begun if key == "head.output.weight" and not config.tie_word_embeddings
    }
    again = load_checkpoint(saved.folder, head=head, labels=labels, seed=3).network.state_dict()
    assert all(torch.equal(state[key], again[key]) for key in state)

    folder = save_checkpoint(loaded, tmp_path / "out")
    theirs, report = entry.classes[head].from_pretrained(folder, output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    assert set(report["missing_keys"]) <= {"final_logits_bias"}  # zeros, which BART's body has no place for
    assert not labels or theirs.config.id2label == dict(enumerate(labels))
    assert load_checkpoint(folder).network.config == config


def test_a_classifier_is_read_as_it_is_or_begun_anew(workshop: Workshop, tmp_path: Path) -> None:
    saved = workshop.saved("bert", "sequence")
    stored = load_checkpoint(saved.folder)
    same = load_checkpoint(saved.folder, head="sequence")
    assert not same.begun
    assert torch.equal(same.network.head.labels.weight, stored.network.head.labels.weight)
    # Another number of labels, and another kind: of eleven too, whose tensors would fit.
    assert load_checkpoint(saved.folder, num_labels=3).begun == ("head.labels.bias", "head.labels.weight")
    tokens = load_checkpoint(saved.folder, head="token")
    assert tokens.begun == ("head.labels.bias", "head.labels.weight")
    assert tokens.network.head.labels.weight.shape == stored.network.head.labels.weight.shape
    assert not torch.equal(tokens.network.head.labels.weight, stored.network.head.labels.weight)
    assert tokens.network.pooler is None  # nothing reads it
    folder = save_checkpoint(load_checkpoint(saved.folder, labels=NAMES), tmp_path / "out")
    assert json.loads((folder / "config.json").read_text())["id2label"] == {
        "0": "no",
        "1": "yes",
        "2": "perhaps",
    }


def test_what_is_named_must_be_stored(workshop: Workshop, tmp_path: Path) -> None:
    saved = workshop.saved("bert", "token")
    stored = load_file(saved.folder / "model.safetensors")
    save_file(
        {key: value for key, value in stored.items() if not key.startswith("classifier.")},
        tmp_path / "model.safetensors",
    )
    (tmp_path / "config.json").write_bytes((saved.folder / "config.json").read_bytes())
    with pytest.raises(CheckpointError, match=r"names a classifier, but none .* head='token'\) begins"):
        load_checkpoint(tmp_path)
    assert load_checkpoint(tmp_path, head="token").begun == ("head.labels.bias", "head.labels.weight")
    del stored["bert.embeddings.LayerNorm.weight"]
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"missing: bert.embeddings.LayerNorm.weight$"):
        load_checkpoint(tmp_path, head="token")


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("bert", {"head": "language-model"}, "head must be one that transformers has for bert"),
        ("bert", {"num_labels": 3}, "head must be 'sequence' or 'token' where num_labels"),
        ("bert", {"head": "token", "labels": NAMES, "num_labels": 2}, "num_labels must be 3"),
        ("t5", {"head": "token"}, "head must fit the stacks: 'token' needs an encoder alone"),
        ("gemma3_text", {"head": "token"}, "head must be one that transformers has for gemma3_text"),
    ],
)
def test_what_cannot_be_is_refused(workshop: Workshop, name: str, asked: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_checkpoint(workshop.saved(name).folder, **asked)


def test_electra_s_two_networks_share_their_tables() -> None:
    """One step trains the table by both losses, and it stays one."""
    sizes = {"vocab_size": 13, "d_embedding": 6, "num_layers": 1, "num_heads": 2, "d_ff": 11}
    generator = new_network(ElectraConfig(**sizes, d_model=4, head="masked-lm"))
    discriminator = new_network(ElectraConfig(**sizes, d_model=8, head="replaced"))
    share_embeddings(generator, discriminator)
    table = discriminator.encoder.embeddings.tokens.weight
    ids = torch.tensor([[3, 5, 2]])
    logits = generator(ids).logits
    (of_generator,) = torch.autograd.grad(logits[..., 1].sum(), table, retain_graph=True)
    (of_discriminator,) = torch.autograd.grad(discriminator(ids).logits.sum(), table)
    assert of_generator.any()
    assert of_discriminator.any()
    both = torch.nn.ModuleList([generator, discriminator])
    assert sum(each is table for each in both.parameters()) == 1
    assert generator.head.output.weight is table
    with pytest.raises(InputError, match=r"tables of tokens of one size: .* got \(13, 6\) and \(13, 7\)"):
        share_embeddings(generator, new_network(ElectraConfig(**{**sizes, "d_embedding": 7}, d_model=8)))
