"""Texts in, texts out: order, batches, dropout, what tokenizers know."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors

import regard
from regard.core.errors import InputError
from regard.decoding import Beams, Draft, Lookup, Rules, Sampling, along, decode_texts, greedy, stream
from regard.text import Tokenizer
from regard.tracing.edits._network import EditedNetwork, targets_of
from unit.decoding.test_steps import MAKERS
from unit.decoding.toy import decoder, pair

WORDS = ["<pad>", "</s>", "a", "b", "c", "d", "e", "f", "g"]
TEXTS = ["a b", "", "c d e f a b c d e f", " \n", "g", "b b b", "a b"]
ROWS = 11  # of the table: two more than words


def tokenizer(*, end: bool) -> Tokenizer:
    backend = tokenizers.Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, "<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<pad>", "</s>"])
    if end:
        backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return Tokenizer.from_str(backend.to_str(), roles={"pad": "<pad>", "eos": "</s>"})


def by_hand(text: str, network: Any, *, two: bool) -> str:
    ids = [WORDS.index(word) for word in text.split()]
    rules = Rules(start_ids=(0,) if two else (), end_ids=(1,), forbidden_ids=(9, 10), max_length=6)
    (way,) = greedy(network, [ids + [1] * two], rules=rules)
    text = " ".join(WORDS[id] for id in way.token_ids if id > 1)
    return text if two else f" {text}"  # after the prompt


@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("beam", [1, 3])
def test_texts_in_their_order_each_as_if_alone(two: bool, beam: int) -> None:
    network, words = pair(ROWS) if two else decoder(ROWS), tokenizer(end=True)
    done: list[int] = []
    how: Any = {"choice": Beams(beam) if beam > 1 else None, "max_length": 6}
    ways = decode_texts(network, words, TEXTS, **how, batch_tokens=40, advance=done.append)
    written = [each.text for (each,) in ways]
    assert [not text for text in written] == [not text.strip() for text in TEXTS]
    assert sum(done) == 5
    assert len(done) > 1
    alone = [decode_texts(network, words, [text], **how)[0][0].text for text in TEXTS]
    assert written == alone
    if beam == 1:
        assert written == [by_hand(text, network, two=two) if text.strip() else "" for text in TEXTS]


def test_an_edit_at_positions_or_words_writes_each_text_as_alone() -> None:
    """The texts of a batch have padding in front, which no edit counts."""
    network, words = decoder(ROWS), tokenizer(end=True)
    value = 9 * torch.randn(network.config.d_model, dtype=next(network.parameters()).dtype)

    def edited(query: Any) -> Any:
        edit = regard.Add("residual", layer=1, query=query, value=value)
        return EditedNetwork(network, targets_of(network, [edit]), words)

    def written(query: Any, texts: Sequence[str]) -> list[float]:
        """How likely each token was of all that is written."""
        ways = decode_texts(edited(query), words, texts, max_length=6)
        return [each for (way,) in ways for each in way.log_probabilities]

    texts = ["a b", "c d e f a b c d e f", "g", "a b c"]
    alone = [each for text in texts for each in written(0, [text])]
    assert written(0, texts) == pytest.approx(alone, abs=1e-9)
    assert written("a#1", texts[::3]) == pytest.approx(written(0, texts[::3]), abs=1e-9)
    assert written([(0, 1)], texts[:1]) == pytest.approx(written(0, texts[:1]), abs=1e-9)
    with pytest.raises(InputError, match='"z" is not a word of the text; the words are "a", "b"'):
        written("z", texts[:1])
    with pytest.raises(
        InputError, match=r"texts must be one where an edit means certain .*query=0\) does; got 2"
    ):
        along(edited(0), words, texts[:2])


@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("choice", [None, Sampling(temperature=4.0, seed=2), Beams(3)], ids=str)
def test_a_stop_ends_a_text_and_is_cut_off(two: bool, choice: Any) -> None:
    network, words = pair(ROWS) if two else decoder(ROWS), tokenizer(end=True)
    how: dict[str, Any] = {"choice": choice, "rules": Rules(start_ids=(0,), max_length=9)}
    if not two:
        how["rules"] = Rules(max_length=9)
    free = [way for (way,) in decode_texts(network, words, TEXTS[-3:], **how)]
    stops = [way.text[5:8] for way in free if len(way.text) > 7]  # two words, or the middle between two
    for stop in (stops[0], stops):
        cut = decode_texts(network, words, TEXTS[-3:], **how, stop=stop)
        for (way,), whole in zip(cut, free, strict=True):
            assert not any(each in way.text for each in ([stop] if isinstance(stop, str) else stop))
            if not isinstance(choice, Beams):
                assert whole.text.startswith(way.text)
                assert whole.token_ids[: len(way.token_ids)] == way.token_ids
                assert way.ended or way.text == whole.text
    (way,) = decode_texts(network, words, TEXTS[-3:-2], **how, stop=stops[0])[0]
    assert way.ended
    assert len(way.token_ids) < 9


def test_how_translations_begin() -> None:
    """Texts with them in front; of each alone, of all in one batch, and of a stream."""
    network, words = pair(ROWS), tokenizer(end=True)
    rules = Rules(start_ids=(0,), end_ids=(1,), first_id=6, max_length=6)
    texts, begins = ["a b", "c d e f", " ", "g", "b b b"], ["d", "a  g", "b", "", "c c c c"]
    how: dict[str, Any] = {"rules": rules}
    together = [way for (way,) in decode_texts(network, words, texts, **how, prefix=begins)]
    assert together[2].text == ""
    for text, begin, way in zip(texts, begins, together, strict=True):
        ids = [[6, *(WORDS.index(word) for word in begin.split())]]
        source = [*(WORDS.index(word) for word in text.split()), 1]
        if not text.strip():
            continue
        allowed = replace(rules, forbidden_ids=(9, 10))
        (wanted,) = greedy(network, [source], rules=allowed, prefixes=ids)
        assert way.token_ids == wanted.token_ids
        assert way.log_probabilities == pytest.approx(wanted.log_probabilities, abs=1e-12)
        said = [*ids[0], *wanted.token_ids]
        assert way.text == " ".join(WORDS[id] for id in said if id > 1)
        if begin:
            assert "".join(stream(network, words, text, **how, prefix=begin)) == way.text
        one = decode_texts(network, words, [text], **how, prefix=begin or [""])[0][0]
        assert one.token_ids == way.token_ids
    # A stop is looked for behind them.
    stop = together[1].text[-1]
    (cut,) = decode_texts(network, words, texts[1:2], **how, prefix=f"a {stop}", stop=stop)[0]
    assert cut.text.startswith(f"e a {stop}")
    beams = decode_texts(network, words, texts[:2], **how, prefix="a", choice=Beams(3), count=2)
    assert all(way.text.startswith("e a") for ways in beams for way in ways)
    with pytest.raises(InputError, match="prefix must be a text, or one for each of 5 texts; got 2"):
        decode_texts(network, words, texts, prefix=["a", "b"])
    with pytest.raises(InputError, match="prefix must be left out: this model has no source"):
        decode_texts(decoder(ROWS), words, ["a"], prefix="b")
    with pytest.raises(InputError, match="prefixes must be one for each of 1 texts; got 2"):
        greedy(network, [[2]], rules=rules, prefixes=[[2], [3]])


@pytest.mark.parametrize("make", MAKERS)
def test_pieces_join_to_the_text(make: Callable[[], Tokenizer]) -> None:
    words = make()
    network = decoder(words.vocab_size, max_seq_len=40)
    for how in (
        {"choice": Sampling(temperature=9.0, seed=1)},
        {"choice": Sampling(temperature=9.0), "stop": ["e", "o"], "rules": Rules(end_ids=(3, 4))},
        {"max_length": 12},
    ):
        (way,) = decode_texts(network, words, ["a river"], **how)[0]  # type: ignore[arg-type]
        given = list(stream(network, words, "a river", **how))  # type: ignore[arg-type]
        assert "".join(given) == way.text
        assert all(given)
        assert len(given) > 1


def test_a_stream_that_is_broken_off() -> None:
    network, words = decoder(ROWS).train(), tokenizer(end=False)
    writing = stream(network, words, "a b", rules=Rules(max_length=9))
    assert next(writing).startswith(" ")
    assert not network.training
    writing.close()
    assert network.training
    with pytest.raises(InputError, match="choice must not be Beams: their text is known only at the end"):
        stream(network, words, "a b", choice=Beams())  # type: ignore[arg-type]


def test_dropout_rests_and_comes_back() -> None:
    network, words = pair(ROWS), tokenizer(end=True)
    expected = decode_texts(network, words, TEXTS, max_length=6)
    network.train()
    frozen = network.encoder.eval()  # type: ignore[union-attr]
    assert decode_texts(network, words, TEXTS, max_length=6) == expected
    assert network.training
    assert not frozen.training


def test_rows_of_the_table_that_are_no_word_are_never_written() -> None:
    network, words = decoder(ROWS), tokenizer(end=False)
    with torch.no_grad():
        network.head.output.weight[9:] *= 30  # type: ignore[union-attr, index, operator]
    for choice in (None, Beams(2)):
        found = decode_texts(network, words, ["a", "b"], choice=choice, max_length=4)
        assert all(way.text for (way,) in found)


@pytest.mark.parametrize("texts", [[], ["", " "]])
def test_nothing_to_write(texts: Sequence[str]) -> None:
    found = decode_texts(decoder(ROWS), tokenizer(end=False), texts)
    assert [(way.text, way.token_ids) for (way,) in found] == [("", ())] * len(texts)


@pytest.mark.parametrize(
    ("texts", "how", "message"),
    [
        (["a", "", "a " * 20], {}, r"texts\[2\] must have at most 19 tokens, the model's limit; got 21"),
        (["a", "", "a \ud800"], {}, r"texts\[2\] is not valid Unicode"),
        (["a"], {"count": 2}, "count must be 1 for greedy decoding, which writes one text; got 2"),
        (["a"], {"choice": Beams(3), "count": 4}, "count must be at most the number of beams, 3; got 4"),
        (["a"], {"choice": "beams"}, r"choice must be .* or Lookup\(...\); got .beams."),
        (["a"], {"stop": 5}, "stop must be texts of at least one character; got 5"),
        (["a"], {"stop": ""}, "stop must be texts of at least one character; got ''"),
    ],
)
def test_refusals(texts: list[str], how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode_texts(pair(ROWS), tokenizer(end=True), texts, **how)


@pytest.mark.parametrize("two", [True, False])
def test_guesses_write_the_greedy_texts_and_stream_them(two: bool) -> None:
    network, known = pair(ROWS) if two else decoder(ROWS), tokenizer(end=two)
    plain = decode_texts(network, known, TEXTS, max_length=6)
    for guess in (Lookup(), Draft(network)):
        found = decode_texts(network, known, TEXTS, max_length=6, choice=guess)
        assert [way.token_ids for (way,) in found] == [way.token_ids for (way,) in plain]
        assert "".join(stream(network, known, TEXTS[2], max_length=6, choice=guess)) == plain[2][0].text
        with pytest.raises(InputError, match="count must be 1 for greedy"):
            decode_texts(network, known, ["a"], choice=guess, count=2)


FULL = [text for text in TEXTS if text.strip()]


@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("stop", ["", "b c", "d"])
@pytest.mark.parametrize(("choice", "count"), [(None, 1), (Sampling(temperature=3.0, seed=1), 2)])
def test_what_is_added_joins_to_what_is_written(two: bool, stop: str, choice: Any, count: int) -> None:
    network, words = pair(ROWS) if two else decoder(ROWS), tokenizer(end=True)
    rules = Rules(start_ids=(0,) if two else (), end_ids=(1,), max_length=7)
    how: dict[str, Any] = {"choice": choice, "count": count, "rules": rules, "stop": [stop] if stop else ()}
    wanted = [way for ways in decode_texts(network, words, FULL, **how) for way in ways]
    read, steps = along(network, words, FULL, **how, top=3)
    assert read == [[WORDS.index(word) for word in text.split()] + [1] * two for text in FULL]
    added = [each for step in steps for each in step]
    for place, way in enumerate(wanted):
        own = [each for each in added if each.way == place]
        assert "".join(each.text for each in own) == way.text
        tokens = [each.token for each in own if each.token is not None]
        assert tuple(token.id for token in tokens) == way.token_ids
        told = torch.tensor([token.log_probability for token in tokens])
        torch.testing.assert_close(told, torch.tensor(way.log_probabilities[: len(tokens)]))
        assert [each.end for each in own if each.end] == ["stop" if way.ended else "length"]
        assert own[-1].end
        if not stop:  # special tokens are no text
            there = [token for token in tokens if token.id > 1]
            assert all(way.text[token.start :].startswith(token.text) for token in there)
        for each in own:
            scores = [token.log_probability for token in each.likeliest]
            assert scores == sorted(scores, reverse=True)
            assert len(scores) == (3 if each.token else 0)
            assert each.token is None or choice or each.token == each.likeliest[0]


def test_ids_are_read_as_they_are() -> None:
    network, words = decoder(ROWS), tokenizer(end=False)
    rules = Rules(max_length=4)
    ids = [[WORDS.index(word) for word in text.split()] for text in FULL]
    (read, one), (_, other) = (along(network, words, texts, rules=rules) for texts in (ids, FULL))
    assert list(one) == list(other)
    assert read == ids
    for odd in (-1, ROWS):
        with pytest.raises(InputError, match=rf"texts\[1\] must be ids from 0 to {ROWS - 1}; got {odd}"):
            along(network, words, ["a", [3, odd]])
    with pytest.raises(InputError, match="one token after another"):
        along(network, words, ["a"], choice=Beams(2))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_tokens_are_spelled_where_they_are_text(make: Any) -> None:
    words: Tokenizer = make()
    network = decoder(words.highest_id + 1)
    _, steps = along(network, words, ["a b"], rules=Rules(max_length=12), choice=Sampling(seed=3), top=1)
    written = [each for step in steps for each in step][:-1]
    assert len(written) == 12
    for each in written:
        assert each.token is not None
        assert each.token.text
        assert "\N{REPLACEMENT CHARACTER}" not in each.token.text


def test_a_text_ends_at_any_token_that_the_file_names() -> None:
    """As chat models do: `eos` is one, and their template ends turns with another."""
    network, words = decoder(ROWS), tokenizer(end=False)
    way = decode_texts(network, words, ["a b"], max_length=6)[0][0]
    assert len(way.token_ids) > 2
    other = way.token_ids[1]
    backend: Any = words._backend
    ending = Tokenizer(backend, source="it", special_ids=words.special_ids, end_ids=(1, other))
    assert words.end_ids == (1,)
    ended = decode_texts(network, ending, ["a b"], max_length=6)[0][0]
    assert ended.token_ids == way.token_ids[: way.token_ids.index(other)]
