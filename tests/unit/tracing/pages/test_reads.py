"""What a decoder read of a text is what a text that goes on from it needs, and no more is read."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from regard.models import Loaded, Transformer
from regard.text import Encoding
from regard.tracing.pages import Reads, _reads
from regard.tracing.pages._reads import _Whole
from tolerances import FP32_OF_LARGEST, WEIGHTS, assert_close_to_largest
from unit.models import tiny
from unit.models.folders import network

IDS = [7, 1, 28, 2, 6, 30, 4, 4, 11, 3]
WIDE: dict[str, Any] = {"max_seq_len": 200}


def _loaded(family: str, **changes: Any) -> Loaded:
    torch.manual_seed(0)
    made = network(family, **changes)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return tiny.loaded(made, family=family)


def _check(loaded: Loaded, reads: Reads, ids: Sequence[int]) -> None:
    encoding = Encoding.from_ids(ids, loaded.tokenizer)
    found, wanted = reads.reader(loaded, ids).said(encoding), _Whole(loaded).said(encoding)
    assert_close_to_largest(found.logits, wanted.logits, 2 * FP32_OF_LARGEST)
    assert_close_to_largest(found.taken, wanted.taken, 2 * FP32_OF_LARGEST)
    assert found.rests == pytest.approx(wanted.rests, abs=WEIGHTS)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens each call of a network reads."""
    counts: list[int] = []
    decode = Transformer.decode

    def counted(self: Transformer, token_ids: torch.Tensor, *rest: Any, **more: Any) -> Any:
        counts.append(token_ids.shape[1])
        return decode(self, token_ids, *rest, **more)

    monkeypatch.setattr(Transformer, "decode", counted)
    return counts


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gpt2", {}),
        ("llama", {}),
        ("mistral", {"sliding_window": 3}),
        ("qwen3", {}),
        ("gemma2", {"sliding_window": 4}),
    ],
)
def test_what_goes_on_is_what_a_whole_pass_says(family: str, changes: Any, read: list[int]) -> None:
    loaded, reads = _loaded(family, **changes, **WIDE), Reads()
    texts = [
        IDS[:3],
        IDS[:4],
        IDS,
        IDS,
        [*IDS[:8], 5, 5, 5],
        IDS[:7],
        [9, 9],
        IDS,
        (20 * IDS)[:150],
        (20 * IDS)[:151],
    ]
    for ids in texts:
        _check(loaded, reads, ids)
    # Of [9, 9] nothing was known, and the seven of IDS were kept beside it.
    assert read == [3, 1, 6, 3, 1, 2, 3, 140, 1]


def test_two_texts_are_kept_beside_each_other_within_bounds(
    read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, reads = _loaded("gpt2", **WIDE), Reads()
    one, other = IDS, IDS[::-1]
    for count in range(7, 10):
        for ids in (one[:count], other[:count]):
            _check(loaded, reads, ids)
    assert read == [7, 7, 1, 1, 1, 1]
    monkeypatch.setattr(_reads, "_MOST_TOKENS", 12)
    for ids in (one, other):
        _check(loaded, reads, ids)
    assert read[6:] == [1, 10]


def test_a_text_that_is_too_long_is_refused_in_words() -> None:
    loaded = _loaded("gpt2", max_seq_len=5)
    with pytest.raises(Exception, match="takes at most 5; shorten it"):
        Reads().reader(loaded, IDS).said(Encoding.from_ids(IDS, loaded.tokenizer))
