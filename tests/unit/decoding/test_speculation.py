"""Guesses at what comes next: what is found, what is taken, how few steps are left, and what is refused."""

from collections.abc import Sequence

import pytest
import torch

from regard import InputError
from regard.core import KeyValueCache
from regard.decoding import Draft, Lookup, Rules, greedy, speculate
from regard.decoding._speculation import Next
from regard.models import Transformer, new_network
from regard.models.families.bart import original_transformer
from regard.models.families.gpt2 import Gpt2Config

RULES = Rules(max_length=13)


def _network(vocab_size: int = 17, seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    config = Gpt2Config(vocab_size=vocab_size, d_model=6, num_layers=2, num_heads=2, d_ff=11, max_seq_len=29)
    return new_network(config).eval()


class _Counted:
    """A guess that counts how often it is asked."""

    def __init__(self, guess: Lookup | Draft) -> None:
        self.tokens, self.calls, self._guess = guess.tokens, 0, guess

    def of(self, source: Sequence[int]) -> Next:
        following = self._guess.of(source)

        def counted(read: Sequence[int], most: int) -> Sequence[int]:
            self.calls += 1
            return following(read, most)

        return counted


@pytest.mark.parametrize(
    ("source", "read", "found"),
    [
        ([], [1, 2, 3, 9, 1, 2], [3, 9, 1, 2]),  # two tokens before the one that follows them
        ([], [1, 5, 2, 5, 3, 5], [3, 5]),  # the latest place
        ([4, 1, 2, 8, 8], [0, 1, 2], [8, 8]),  # in the source
        ([], [1, 2, 3], []),
        ([], [1], []),
    ],
)
def test_lookup_finds_what_came_after(source: list[int], read: list[int], found: list[int]) -> None:
    assert list(Lookup(tokens=4).of(source)(read, 4)) == found
    assert list(Lookup(tokens=4).of(source)(read, 1)) == found[:1]


def test_a_model_that_drafts_for_itself_is_always_right() -> None:
    network, text = _network(), [[3, 1, 4]]
    guess = _Counted(Draft(network, tokens=3))
    assert [each.token_ids for each in speculate(network, text, guess=guess, rules=RULES)] == [
        each.token_ids for each in greedy(network, text, rules=RULES)
    ]
    assert guess.calls == 3  # 1 token, then 4 a step


def test_another_draft_and_a_stop_change_nothing() -> None:
    network, text = _network(), [[3, 1, 4], [1, 5]]
    for until in (None, lambda place, written: len(written) == 5 + place):
        expected = greedy(network, text, rules=RULES, until=until)
        for draft in (_network(seed=1), _network(seed=2)):
            got = speculate(network, text, guess=Draft(draft), rules=RULES, until=until)
            assert [each.token_ids for each in got] == [each.token_ids for each in expected]
            assert [each.ended for each in got] == [each.ended for each in expected]


def test_the_end_of_the_table_of_positions_is_reached() -> None:
    network, text = _network(), [[3] * 20]
    rules = Rules(max_length=10)
    (expected,) = greedy(network, text, rules=rules)
    for guess in (Lookup(), Draft(network)):
        (got,) = speculate(network, text, guess=guess, rules=rules)
        assert got.token_ids == expected.token_ids


def test_a_window_keeps_what_may_be_taken_back() -> None:
    for back, fits in ((0, False), (5, True)):
        cache = KeyValueCache(window=3, back=back)
        values = torch.randn(1, 2, 200, 5)
        for at in range(200):  # one by one, so that what no query sees is let go
            cache.append(values[:, :, at : at + 1], values[:, :, at : at + 1])
            if at > 60 and cache._base == cache.length - 1 - 3 - back:
                break
        length = cache.length - 5
        if fits:
            cache.cut(length)
            k, _ = cache.append(values[:, :, :1], values[:, :, :1])
            assert torch.equal(k[:, :, :-1], values[:, :, length - 3 : length])
        else:
            with pytest.raises(InputError, match="let go of the rest"):
                cache.cut(length)


def test_a_draft_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"a decoder with the model's 17 tokens; .* a decoder with 19"):
        speculate(_network(), [[3]], guess=Draft(_network(19)), rules=RULES)
    both = new_network(original_transformer(17, d_model=6, num_layers=1, num_heads=2, d_ff=11)).eval()
    with pytest.raises(InputError, match=r"its draft is an encoder-decoder with 17"):
        speculate(_network(), [[3]], guess=Draft(both), rules=RULES)
    with pytest.raises(InputError, match=r"texts\[1\] must hold at least one token"):
        speculate(_network(), [[3], []], guess=Lookup(), rules=RULES)
