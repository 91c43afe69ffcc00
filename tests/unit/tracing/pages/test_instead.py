"""What an edit leaves of a text: held against the network itself, run with the edit."""

import pytest
import torch

import regard
from regard.tracing import Zero
from regard.tracing.pages._instead import left_by
from regard.tracing.pages._page import page_record

TEXT = "When Mary and John went to the store, John gave a drink to"


def test_a_decoder_goes_on_with_another_word() -> None:
    """One head changes little here; without the attention of layer 0 the model does not go on with Mary."""
    model = regard.load("smollm2")
    traces = model.trace(TEXT), model.trace(TEXT, keep="qkv")
    ids = torch.tensor([traces[0].token_ids])
    whole = model(ids)
    for edit in (Zero("head", layer=18, head=7), Zero("attention", layer=0)):
        other = model.edited(edit)(ids)
        cosine = torch.cosine_similarity(whole.last_hidden_state[0], other.last_hidden_state[0])
        for trace in traces:
            found = left_by(trace, edit)
            torch.testing.assert_close(
                torch.tensor(found["cosine"]), cosine, rtol=0, atol=1e-4
            )  # four digits
            for name, output in (("before", whole), ("after", other)):
                assert output.logits is not None
                share, best = output.logits[0, -1].double().softmax(0).topk(10)
                tokens = [model.tokenizer.shown(id) for id in best.tolist()]
                assert [each["text"] for each in found["next"][name]] == tokens
                shares = [each["probability"] for each in found["next"][name]]
                assert shares == pytest.approx(share.tolist(), rel=1e-3)
    assert found["next"]["before"][0]["text"] == "␣Mary" != found["next"]["after"][0]["text"]


def test_the_end_of_a_text_is_called_so() -> None:
    trace = regard.load("smollm2").trace("The trophy does not fit into the suitcase because it is too big.")
    found = left_by(trace, Zero("head", layer=18, head=7))["next"]["before"]
    assert "(the end)" in [each["text"] for each in found]
    assert not any("<|" in each["text"] for each in found)


def test_a_page_knows_a_text_without_a_word_that_is_like_all_others() -> None:
    record = page_record(regard.load().trace("the the the the"), story=True)
    assert [each.get("unseen") for each in record.without] == [None, record.start and record.start["key"]]


def test_of_an_encoder_there_is_no_next_word() -> None:
    trace = regard.load().trace("time flies like an arrow")
    found = left_by(trace, Zero("head", layer=3, head=5))
    assert found.keys() == {"cosine"}
    wanted = trace.ablation(3, 5).cosine
    torch.testing.assert_close(torch.tensor(found["cosine"]), wanted, rtol=0, atol=1e-4)
