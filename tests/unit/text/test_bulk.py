"""Many texts at once against each by itself."""

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

import regard
from regard import InputError
from regard.text import Tokenizer

TEXTS = [
    "Don't  flood the river bank.",
    "naïve café 👍🏽",
    "unforgettably [MASK] done",
    "1\u202f000 東京\u200b!",
]


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


@pytest.mark.parametrize(
    ("text", "words", "word_of", "without"),
    [
        ("I saw New York.", ["I", "saw", "New York", "."], [0, 1, 2, 3], 0),
        ("New York new york", ["New York", "new york"], [0, 1], 0),
        ("to New  York", ["to", "New", "York"], [0, 1, 2], 0),
        ("x)): a", ["x", ")):", "a"], [0, 1, 2], 0),  # of punctuation alone, all
        ("a (self", ["a", "self"], [0, 1], 1),  # beside letters, none
    ],
)
def test_words_that_a_piece_joins_are_one(
    text: str, words: list[str], word_of: list[int], without: int
) -> None:
    vocabulary = {
        word: place for place, word in enumerate(["?", "I", "saw", "New", "York", ".", "to", "a", "x"])
    }
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_tokens(["New York", "new york", ")):", "(self"])
    (aligned,) = Tokenizer.from_str(backend.to_str()).bulk.aligned([text])
    assert [text[start:end] for start, end in aligned.words] == words
    assert (aligned.word_of, aligned.without_pieces) == (word_of, without)


def test_a_text_that_is_none_is_named_by_its_number(model: regard.Model) -> None:
    for text in ("", "  ", "\u200b"):
        with pytest.raises(InputError, match=r"texts\[12\]"):
            model.tokenizer.bulk.pieces(["fish", "fish", text], first=10)
    with pytest.raises(InputError, match=r"texts\[0\] must be a string; got int"):
        model.tokenizer.bulk.aligned([5])  # type: ignore[list-item]
