"""Many texts at once against each by itself."""

import pytest

import regard
from regard import InputError

TEXTS = [
    "Don't  flood the river bank.",
    "naïve café 👍🏽",
    "unforgettably [MASK] done",
    "1\u202f000 東京\u200b!",
]


@pytest.fixture(scope="module")
def model() -> regard.Model:
    return regard.load()


def test_pieces_are_those_of_encode(model: regard.Model) -> None:
    bulk, frame = model.tokenizer.bulk, model.tokenizer.bulk.frame()
    for text, ids in zip(TEXTS, bulk.pieces(TEXTS), strict=True):
        assert (*frame.before, *ids, *frame.after) == model.tokenizer.encode(text).token_ids
    assert len(frame) == 2


def test_words_and_spans_are_those_of_encode(model: regard.Model) -> None:
    for text, aligned in zip(TEXTS, model.tokenizer.bulk.aligned(TEXTS), strict=True):
        encoding = model.tokenizer.encode(text)
        own = encoding.tokens[1:-1]
        assert aligned.spans == [token.span for token in own]
        words = [word for word in encoding.words if word.tokens]
        assert aligned.words == [word.span for word in words]
        assert aligned.without_pieces == len(encoding.words) - len(words)
        for place, word in enumerate(words):
            assert [p + 1 for p, of in enumerate(aligned.word_of) if of == place] == list(word.tokens)


def test_a_text_that_is_none_is_named_by_its_number(model: regard.Model) -> None:
    for text in ("", "  ", "\u200b"):
        with pytest.raises(InputError, match=r"texts\[12\]"):
            model.tokenizer.bulk.pieces(["fish", "fish", text], first=10)
    with pytest.raises(InputError, match=r"texts\[0\] must be a string; got int"):
        model.tokenizer.bulk.aligned([5])  # type: ignore[list-item]
