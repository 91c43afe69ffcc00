"""Greedy decoding: the likeliest token each time, rules, and rows that leave."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from regard.core.errors import CheckpointError, InputError
from regard.decoding import Lookup, Rules, beam_search, greedy, speculate
from regard.decoding._steps import Pieces
from regard.models import load_checkpoint, new_network, write_checkpoint
from regard.models.families.bart import original_transformer
from regard.models.families.bert import BertConfig
from regard.models.families.bert import build as build_bert
from regard.text import Tokenizer
from unit.decoding.toy import decoder, log_probabilities, pair

TEXTS = [[3, 1], [4, 1, 0, 3, 3], [1], [2, 6, 9]]


@pytest.mark.parametrize(
    "rules",
    [
        Rules(start_ids=(0,), end_ids=(2,), max_length=9),
        Rules(start_ids=(0,), end_ids=(2, 7), min_length=4, max_length=9),
        Rules(start_ids=(0, 5), end_ids=(2,), forbidden_ids=(1, 3, 4), max_length=9),
        Rules(start_ids=(0,), end_ids=(2,), first_id=8, last_id=2, max_length=5),
        Rules(start_ids=(0,), max_length=1),
    ],
)
@pytest.mark.parametrize("two", [False, True])
def test_every_token_is_the_likeliest_that_rules_allow(rules: Rules, two: bool) -> None:
    network = pair(11) if two else decoder(11)
    start = list(rules.start_ids)
    for text, way in zip(TEXTS, greedy(network, TEXTS, rules=rules), strict=True):
        read = text if two else start + text
        before = start[1:] if two else []
        tokens = [*way.token_ids, *rules.end_ids[: 1 if way.ended else 0]]
        scores = log_probabilities(network, read, before + tokens, start[0])[len(before) :]
        total = 0.0
        for length, token in enumerate(tokens):
            allowed = set(range(11)) - set(rules.forbidden_ids)
            if length < rules.min_length:
                allowed -= set(rules.end_ids)
            forced = rules.first_id if length == 0 else rules.last_id if length == 4 else None
            if forced is not None:
                assert token == forced
                continue
            likeliest = max(allowed, key=scores[length].tolist().__getitem__)
            assert likeliest == token or (way.ended and {likeliest, token} <= set(rules.end_ids))
            total += float(scores[length, likeliest])
        assert way.log_probability == pytest.approx(total, rel=1e-12)
        assert way.ended or len(way.token_ids) == rules.max_length


def test_a_finished_text_leaves_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    network, rows = decoder(11), []
    plain = network.decode

    def decode(token_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        rows.append(len(token_ids))
        return plain(token_ids, *args, **kwargs)

    monkeypatch.setattr(network, "decode", decode)
    texts = [[token] for token in range(11)]
    for search, ways in ((greedy, 1), (beam_search, 4)):
        rows.clear()
        written = search(network, texts, rules=Rules(end_ids=(2, 8), max_length=9))
        assert rows[0] == 11
        assert rows[1:] == sorted(rows[1:], reverse=True)
        assert rows[-1] < 11 * ways, written


def test_rules_of_a_checkpoint(tmp_path: Path) -> None:
    config = original_transformer(11, d_model=6, num_layers=1, num_heads=2, d_ff=11)
    folder = write_checkpoint(new_network(config), tmp_path / "pair")
    assert Rules.of(load_checkpoint(folder)) == Rules(start_ids=(0,), end_ids=(1,))
    assert Rules.of(pair(11)) == Rules(start_ids=(0,), end_ids=(1,))
    file = folder / "generation_config.json"
    said: dict[str, Any] = {"eos_token_id": [1, 7], "decoder_start_token_id": 4, "forced_bos_token_id": 9}
    said |= {"bad_words_ids": [[0], [3, 4], [7]], "forced_eos_token_id": None}
    said |= {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3}
    file.write_text(json.dumps(said))
    expected = Rules(
        start_ids=(4,),
        end_ids=(1, 7),
        forbidden_ids=(0,),
        forbidden=((3, 4),),
        first_id=9,
        max_length=5,
        repetition_penalty=1.3,
        no_repeat=3,
    )
    assert Rules.of(load_checkpoint(folder), max_length=5) == expected
    with pytest.raises(InputError, match=r"max_length must be a whole number, at least 1; got -1"):
        Rules.of(load_checkpoint(folder), max_length=-1)
    file.write_text('{"eos_token_id": "end"}')
    with pytest.raises(CheckpointError, match="'eos_token_id' must be an id or a list of ids; got end"):
        Rules.of(load_checkpoint(folder))
    assert Rules.of(decoder()) == Rules()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"end_ids": (-1,)}, "end_ids must be a whole number, at least 0; got -1"),
        ({"last_id": 1.5}, "last_id must be a whole number"),
        ({"min_length": 7, "max_length": 5}, "max_length must be a whole number, at least 7; got 5"),
        ({"max_length": 0}, "max_length must be a whole number, at least 1"),
        ({"end_ids": 5}, "end_ids must hold ids in a tuple; got 5"),
        ({"forbidden": (5,)}, "forbidden must hold ids in a tuple; got 5"),
        ({"forbidden": ((),)}, "forbidden must hold sequences of at least one token"),
        ({"no_repeat": -1}, "no_repeat must be a whole number, at least 0"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0; got 0"),
    ],
)
def test_rules_that_cannot_be(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Rules(**arguments)


def test_tokens_that_a_model_does_not_have_are_never_written() -> None:
    network = decoder()
    plain = greedy(network, TEXTS[:1], rules=Rules(max_length=4))
    beyond = Rules(
        max_length=4, end_ids=(99,), min_length=2, forbidden_ids=(5, 6), forbidden=((1, 99), (99, 1))
    )
    assert greedy(network, TEXTS[:1], rules=beyond) == plain
    (guessed,) = speculate(network, TEXTS[:1], guess=Lookup(), rules=beyond)
    assert guessed.token_ids == plain[0].token_ids
    with pytest.raises(InputError, match="first_id must be a whole number, from 0 to 4; got 5"):
        greedy(network, TEXTS[:1], rules=Rules(first_id=5))


def test_refusals() -> None:
    network = decoder()
    with pytest.raises(InputError, match="beams is not a rule; the rules are start_ids, end_ids"):
        Rules.of(network, beams=3)
    with pytest.raises(InputError, match="texts must hold at least one text"):
        greedy(network, [])
    with pytest.raises(InputError, match=r"texts\[1\] must hold at least one token"):
        greedy(network, [[1], []])
    with pytest.raises(InputError, match=r"texts\[1\] must leave room for a token: it has 20, .* is 19"):
        greedy(network, [[1], [1] * 20])
    with pytest.raises(InputError, match=r"max_length must be at most 18 for texts\[1\], .* 2 tokens of"):
        greedy(network, [[1], [1, 1]], rules=Rules(max_length=19))
    with pytest.raises(InputError, match="start_ids must be given"):
        greedy(pair(), [[1]], rules=Rules())
    with pytest.raises(InputError, match=r"token_ids must be from 0 to 4; got 5"):
        greedy(network, [[5]])
    bert = build_bert(BertConfig(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11))
    with pytest.raises(InputError, match="this bert has no decoder"):
        greedy(bert, [[1]])


TEXT = "a river, 河岸 👍🏽 \ufffd\ufffd e\u0301 END of"


def byte_level() -> Tokenizer:
    """Like GPT-2: every byte is a token, and " of" and "ND" are too."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("o", "f"), ("Ġ", "of"), ("N", "D")]
    words = [*letters, *("".join(pair) for pair in merges)]
    backend = tokenizers.Tokenizer(models.BPE({word: id for id, word in enumerate(words)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<end>"])
    return Tokenizer.from_str(backend.to_str())


def byte_fallback() -> Tokenizer:
    """Like Llama: words begin with "▁", and what the vocabulary lacks is written in bytes."""
    words = [*(f"<0x{byte:02X}>" for byte in range(256)), *"▁arive,ENDof", "ND", "▁of", "<unk>"]
    vocabulary = {word: id for id, word in enumerate(words)}
    merges = [("N", "D"), ("▁", "o"), ("▁o", "f")]
    vocabulary["▁o"] = len(vocabulary)
    backend = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    strip = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(strip)
    backend.add_special_tokens(["<end>"])
    return Tokenizer.from_str(backend.to_str())


def word_pieces() -> Tokenizer:
    words = ["[UNK]", "a", "river", "##s", ",", "'", "t", "END", "o", "##f", "<end>"]
    backend = tokenizers.Tokenizer(models.WordPiece({word: id for id, word in enumerate(words)}))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(["<end>"])
    return Tokenizer.from_str(backend.to_str())


MAKERS = (byte_level, byte_fallback, word_pieces)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("stops", [(), ("END",), ("er", "D o")], ids=str)
def test_what_is_settled_stays(make: Callable[[], Tokenizer], stops: tuple[str, ...]) -> None:
    """Of texts and of tokens thrown together, all that follows only adds to what was given out."""
    tokenizer, draw = make(), random.Random(7)
    (before, real) = tokenizer.bulk.pieces(["a river", TEXT])
    rows = [real, *(draw.choices(range(tokenizer.vocab_size), k=draw.randint(1, 40)) for _ in range(120))]
    given_early = 0
    for prompt in ((), before):
        pieces = Pieces(tokenizer, prompt, stops)
        for ids in rows:
            stopped = next((n for n in range(1, len(ids)) if pieces.has_stop(ids[:n])), len(ids))
            whole = pieces.text(ids[:stopped])
            given = ""
            for n in range(1, stopped + 1):
                settled = pieces.settled(ids[:n])
                assert settled.startswith(given) or given.startswith(settled)
                given = max(given, settled, key=len)
                assert whole.startswith(given)
                given_early += len(given) > 0
            assert not any(stop in whole for stop in stops)
    assert given_early > 300


def test_no_half_characters() -> None:
    tokenizer = byte_level()
    (ids,) = tokenizer.bulk.pieces([TEXT])
    pieces = Pieces(tokenizer, ())
    shown = {pieces.settled(ids[:n]) for n in range(1, len(ids) + 1)}
    assert pieces.text(ids) == TEXT
    assert {TEXT[: n + 1] for n in range(len("a river, 河岸 👍🏽 "))} <= shown
    for text in shown:
        assert TEXT.startswith(text)


def test_a_stop_across_tokens() -> None:
    tokenizer = byte_level()
    (ids,) = tokenizer.bulk.pieces(["the END of"])
    assert [tokenizer.token_of(id) for id in ids[-3:]] == ["E", "ND", "Ġof"]
    pieces = Pieces(tokenizer, (), ("D o", "f it"))
    assert [pieces.settled(ids[:n]) for n in range(4, len(ids) + 1)] == ["the ", "the E", "the EN", "the EN"]
    assert [pieces.has_stop(ids[:n]) for n in range(4, len(ids) + 1)] == [False] * 3 + [True]
    assert pieces.text(ids) == "the EN"
    # Of a beginning that was given, a stop may take all but its last character, and none that was there.
    [begun] = tokenizer.bulk.pieces(["the E"])
    assert Pieces(tokenizer, (), ("e EN",), begun).text(ids[len(begun) :]) == "th"
    assert Pieces(tokenizer, (), ("e E", "he"), begun).text(ids[len(begun) :]) == "the END of"


@pytest.mark.parametrize(
    ("make", "prompt", "text"),
    [
        (byte_level, "a", " of"),
        (byte_fallback, "a", " of"),
        (byte_fallback, "a 河", " of"),
        (word_pieces, "a", " of"),
        (word_pieces, "river", "s"),
    ],
)
def test_the_prompt_and_the_text_are_the_whole(make: Callable[[], Tokenizer], prompt: str, text: str) -> None:
    tokenizer = make()
    before, both = tokenizer.bulk.pieces([prompt, prompt + text])
    assert both[: len(before)] == before or make is word_pieces
    new = both[len(before) :] or [tokenizer.id_of("##s")]
    end = tokenizer.id_of("<end>")
    assert Pieces(tokenizer, [*before, end]).text([*new, end]) == text
    assert Pieces(tokenizer, [end]).text(new) == text.lstrip() or make is not byte_fallback
