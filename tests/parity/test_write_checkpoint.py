"""Networks that came from no folder, with a tokenizer made in Python: written, and read by transformers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors

import regard
from parity.conftest import Workshop
from parity.families import ENTRIES, PLAINLY
from parity.families_entry import LABELS, PAD
from regard.core.errors import CheckpointError, InputError, OutputError
from regard.models import load_checkpoint, new_network, write_checkpoint
from regard.models.families.bert import BertConfig
from regard.text import Tokenizer
from tolerances import PARITY_FP32, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")

# A family's configuration and tokenizer are written alike under each of its heads (test_families_files.py
# has them all): of these each is met in some family.
ALL_HEADS = ("bert", "electra", "gpt2", "t5", "bart")
KEPT = [
    (name, label)
    for name in PLAINLY
    for label in ENTRIES[name].classes
    if label not in ENTRIES[name].left_out and (name in ALL_HEADS or label in ("masked-lm", "language-model"))
]
TEXTS = ["River  banks", "the [MASK] of the river, <b>"]


def made_in_python() -> Tokenizer:
    words = ["[BOS]", "[EOS]", "[UNK]", "[SEP]", "the", "river", "bank", "[PAD]", "##s", "of", ",", "[MASK]"]
    assert words.index("[PAD]") == PAD
    backend = tokenizers.Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens([word for word in words if word.startswith("[")])
    backend.post_processor = processors.TemplateProcessing(
        single="[BOS] $A [EOS]", special_tokens=[("[BOS]", 0), ("[EOS]", 1)]
    )
    roles = {"bos": "[BOS]", "eos": "[EOS]", "unk": "[UNK]", "pad": "[PAD]", "mask": "[MASK]"}
    return Tokenizer.from_str(backend.to_str(), roles=roles)


@pytest.mark.parametrize(("name", "label"), KEPT)
def test_it_comes_back_here_and_in_transformers(
    workshop: Workshop, name: str, label: str, tmp_path: Path
) -> None:
    entry, tokenizer = ENTRIES[name], made_in_python()
    names = tuple(f"label {i}" for i in range(LABELS)) if label in ("sequence", "token") else ()
    config: Any = replace(workshop.network(name, label).config, labels=names)
    network = new_network(config, seed=1).eval()
    folder = write_checkpoint(network, tmp_path / "out", tokenizer=tokenizer)

    again = regard.load(folder)
    assert again.network.config == config
    assert again.loaded.require_tokenizer().special_ids == tokenizer.special_ids
    theirs, report = entry.classes[label].from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    if names:
        assert theirs.config.id2label == dict(enumerate(names))
    assert (theirs.config.bos_token_id, theirs.config.eos_token_id) == (0, getattr(config, "eos_token_id", 1))

    # For this one type AutoTokenizer has a class of its own, whatever the files say.
    reader = transformers.PreTrainedTokenizerFast if entry.name == "qwen2" else transformers.AutoTokenizer
    read = reader.from_pretrained(folder)
    for text in TEXTS:
        assert tuple(read(text)["input_ids"]) == tokenizer.encode(text).token_ids
    for role in ("bos", "eos", "unk", "pad", "mask"):
        assert getattr(read, f"{role}_token_id") == getattr(tokenizer.special_ids, role)
    batch = read(TEXTS[:1], return_tensors="pt")
    ids = batch["input_ids"]
    ids[:, -1] = getattr(config, "eos_token_id", 1)
    given = {"decoder_input_ids": ids} if entry.shape_of(label) == "encoder-decoder" else {}
    if label == "sequence":
        given = {}
    types = {"token_type_ids": batch["token_type_ids"]} if "token_type_ids" in batch else {}
    assert ("token_type_ids" in batch) == (config.num_token_types > 0)
    with torch.no_grad():
        output = theirs.eval()(input_ids=ids, **given, **types)
        ours = network(ids, decoder_token_ids=given.get("decoder_input_ids"))
    if ours.logits is not None:
        assert_close_to_largest(ours.logits, output.logits, PARITY_FP32)
    else:
        assert_close_to_largest(ours.last_hidden_state, output.last_hidden_state, PARITY_FP32)


def small(**fields: Any) -> BertConfig:
    sizes = {"vocab_size": 13, "d_model": 6, "num_layers": 1, "num_heads": 2, "d_ff": 11, "max_seq_len": 7}
    return BertConfig(**{**sizes, **fields})


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    network = new_network(small())
    with pytest.raises(InputError, match=r"carried must hold fields .* got 'hidden_size'"):
        write_checkpoint(network, tmp_path / "out", carried={"hidden_size": 7})
    with pytest.raises(CheckpointError, match=r"tokens up to id 11, but the model's table .* has 5 rows"):
        write_checkpoint(new_network(small(vocab_size=5)), tmp_path / "out", tokenizer=made_in_python())
    with pytest.raises(InputError, match="labels must be a name for each of num_labels = 3; got 2"):
        write_checkpoint(new_network(small(head="token", num_labels=3, labels=("a", "b"))), tmp_path / "out")
    with pytest.raises(OutputError, match="cannot be written"):
        write_checkpoint(network, tmp_path / "no" / "out")
    assert not list(tmp_path.iterdir())
    folder = write_checkpoint(network, tmp_path / "out", carried={"problem_type": "regression"})
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["problem_type"] == "regression"
    assert load_checkpoint(folder).tokenizer is None


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"end": "[SEP]"}, "roles must be one of bos, .*; got 'end'"),
        ({"eos": "[X]"}, "roles: eos .* got '\\[X\\]'"),
    ],
)
def test_a_role_is_a_known_one_of_a_known_token(roles: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Tokenizer.from_str(made_in_python().to_str(), roles=roles)
