"""The traces of every family against transformers: every attention matrix and every embedding layer."""

from pathlib import Path

import pytest
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers

import regard
from parity.conftest import Workshop
from parity.families import ENTRIES, UNDER_TEST
from parity.harness import run_theirs
from tolerances import PARITY_FP32, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("name", UNDER_TEST)
def test_a_trace_of_ids(workshop: Workshop, name: str) -> None:
    saved, batch = workshop.saved(name), ENTRIES[name].inputs("base").all()["plain"]
    targets = None if batch.target_ids is None else batch.target_ids[0]
    trace = workshop.model(name).trace(token_ids=batch.token_ids[0], target_ids=targets)
    theirs = run_theirs(saved, batch, gradients=False)
    assert set(trace.kinds) == theirs.weights.keys()
    for kind in trace.kinds:
        assert len(trace.attention(kind)) == len(theirs.weights[kind])
        for layer, weights in enumerate(theirs.weights[kind]):
            assert_close_to_largest(trace.weights(layer, kind=kind), weights[0], PARITY_FP32)
    for kind, hidden in theirs.hidden.items():
        assert_close_to_largest(trace.embeddings("input", kind=kind), hidden[0][0], PARITY_FP32)
        for layer in range(1, len(hidden)):
            assert_close_to_largest(trace.embeddings(layer, kind=kind), hidden[layer][0], PARITY_FP32)


def _tokenizer(path: Path, token_types: bool, vocab_size: int) -> None:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(
        ["the river bank", "a river", "the bank at the river"],
        trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False),
    )
    of_pair = "1" if token_types else "0"
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair=f"[CLS]:0 $A:0 [SEP]:0 $B:{of_pair} [SEP]:{of_pair}",
        special_tokens=[(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    backend.save(str(path))


@pytest.mark.parametrize("pair", [None, "the river"], ids=["single", "pair"])
@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_a_trace_of_a_text(workshop: Workshop, name: str, pair: str | None, tmp_path: Path) -> None:
    saved, types_of = workshop.saved(name), ENTRIES[name].inputs("base").num_token_types
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).write_bytes((saved.folder / file).read_bytes())
    _tokenizer(tmp_path / "tokenizer.json", types_of > 0, 53)
    trace = regard.load(tmp_path).trace("the bank at a river", pair)
    assert trace.tokens[0] == "[CLS]"
    arguments = {"input_ids": torch.tensor([trace.token_ids])}
    if types_of:
        types = [token.type_id for token in trace.encoding.tokens]
        assert max(types) == (0 if pair is None else 1)
        arguments["token_type_ids"] = torch.tensor([types])
    with torch.no_grad():
        output = saved.model(**arguments, output_attentions=True, output_hidden_states=True)
    for layer, weights in enumerate(output.attentions):
        assert_close_to_largest(trace.weights(layer), weights[0], PARITY_FP32)
        assert_close_to_largest(trace.embeddings(layer + 1), output.hidden_states[layer + 1][0], PARITY_FP32)
    assert_close_to_largest(trace.embeddings("input"), output.hidden_states[0][0], PARITY_FP32)
