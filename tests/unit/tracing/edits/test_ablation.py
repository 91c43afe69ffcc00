"""The causal check is a run without one head, or with a word that no other may look at."""

import pytest
import torch

import regard
from regard.core.errors import InputError
from regard.tracing import Trace
from regard.tracing.edits import unseen, unseen_cosines
from tolerances import FP32_OF_LARGEST, assert_close_to_largest
from unit.models.folders import write, write_tokenizer

TEXT = "w3 w5 w7 w1 w9"


def _model(family: str, tmp_path: object) -> regard.Model:
    folder = write(tmp_path, family)  # type: ignore[arg-type]
    write_tokenizer(folder, 31)
    return regard.load(str(folder))


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_it_moves_what_an_edit_moves(family: str, tmp_path: object) -> None:
    model = _model(family, tmp_path)
    for parameter in model.network.parameters():
        if parameter.ndim == 1:
            parameter.data.uniform_(
                0.5, 2
            )  # a norm that gives every token the same length would hide whose it is
    trace = model.trace(TEXT)
    ids = torch.tensor([trace.token_ids])
    with torch.no_grad():
        before = model(ids)
        edited = model.edited(regard.Zero("context", layer=-1, head=1))
        after = edited(ids)
    found = trace.ablation(-1, 1)
    assert (found.layer, found.head, len(found.tokens)) == (trace.num_layers - 1, 1, 5)
    h, other = before.last_hidden_state[0], after.last_hidden_state[0]
    assert_close_to_largest(found.moved, (other - h).norm(dim=1) / h.norm(dim=1), 10 * FP32_OF_LARGEST)
    assert_close_to_largest(found.cosine, torch.cosine_similarity(h, other), 10 * FP32_OF_LARGEST)
    # Printed, it is a table: a row a token, the longest bar where most has moved.
    shown = str(found).splitlines()[-5:]
    assert [line.split()[:2] for line in shown] == [
        [row["token"], f"{row['moved']:.3f}"] for row in found.to_rows()
    ]
    assert max(shown, key=lambda line: line.count("█")) == shown[int(found.moved.argmax())]
    if before.logits is None:
        assert found.before is found.after is None
        return
    assert found.to_rows()[0].keys() == {"token", "moved", "cosine", "before", "after"}
    for tops, output in ((found.before, before), (found.after, after)):
        assert tops is not None
        probability, number = output.logits[0].softmax(dim=1).max(dim=1)
        assert [each.token for each in tops] == [f"w{each}" for each in number.tolist()]
        torch.testing.assert_close(torch.tensor([each.probability for each in tops]), probability)


def test_of_two_stacks_the_decoders_output_moves(tmp_path: object) -> None:
    model = _model("bart", tmp_path)
    trace = model.trace(TEXT, target="w8 w3")
    assert isinstance(trace, Trace)
    assert trace.decoder is not None
    for kind in ("encoder", "decoder", "cross"):
        found = trace.ablation(0, 2, kind=kind)  # type: ignore[arg-type]
        assert len(found.tokens) == len(trace.decoder.encoding.tokens) != len(trace.tokens)
        assert float(found.moved.max()) > 0
    with pytest.raises(InputError, match="kind"):
        trace.ablation(0, 2)


def test_a_dead_head_moves_nothing(tmp_path: object) -> None:
    model = _model("bert", tmp_path)
    rows = slice(0, model.network.stack("encoder").layers[0].attention.v.out_features // 3)  # type: ignore[union-attr,operator]
    for parameter in model.network.stack("encoder").layers[0].attention.v.parameters():  # type: ignore[union-attr,operator]
        parameter.data[rows] = 0.0
    found = model.trace(TEXT).ablation(0, 0)
    assert not found.moved.any()


def test_the_model_is_left_as_it_is(tmp_path: object) -> None:
    model = _model("bert", tmp_path)
    trace = model.trace(TEXT)
    trace.ablation(0, 0)
    assert torch.equal(model.trace(TEXT).embeddings(), trace.embeddings())


def test_what_it_refuses(tmp_path: object) -> None:
    model = _model("bert", tmp_path)
    trace = model.trace(TEXT)
    with pytest.raises(InputError, match="head must be from 0 to 2"):
        trace.ablation(0, 3)
    path = trace.save(f"{tmp_path}/trace.safetensors")
    with pytest.raises(InputError, match="without the model"):
        Trace.open(path).ablation(0, 0)


def test_no_other_word_looks_at_it_and_the_others_move() -> None:
    model = regard.load()
    text = "an unforgettable poem about attention"
    trace = model.trace(text)
    tokens = list(trace.encoding.find("unforgettable"))
    assert len(tokens) > 1
    changed = model.edited(unseen(tokens)).trace(text)
    others = [place for place in range(len(trace.tokens)) if place not in tokens]
    for layer in range(6):
        weights = changed.weights(layer)
        assert weights[:, others][:, :, tokens].max() == 0
        torch.testing.assert_close(weights.sum(dim=2), torch.ones(weights.shape[:2]))
        assert weights[:, tokens][:, :, tokens].max() > 0  # its pieces see each other
    found = unseen_cosines(trace, tokens[-1])
    wanted = torch.cosine_similarity(trace.embeddings(), changed.embeddings())
    torch.testing.assert_close(found.float(), wanted)
    assert found[others].min() < 0.98
    with pytest.raises(InputError, match="unseen must be tokens of the text, from 0 to"):
        model.edited(unseen([99])).trace(text)
