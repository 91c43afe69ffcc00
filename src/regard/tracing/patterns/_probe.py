"""Random tokens said twice, on which heads that copy have something to do."""

from collections.abc import Iterator

import numpy as np

from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.models import Loaded


def repeated_tokens(loaded: Loaded, count: int, *, length: int = 50, seed: int = 0) -> Iterator[list[int]]:
    """Sequences of random tokens, each followed by itself: the usual test for induction heads.

    In sentences few tokens come back; here every one does, and as the tokens are random, nothing but the
    repetition tells what comes next (Olsson et al. 2022, arXiv 2209.11895, "repeated random tokens"). The
    number of tokens that are repeated is drawn anew for each sequence, from 3/4 of `length` to `length`, so
    that a copy does not always lie equally far back. Special tokens that the model's tokenizer puts around a
    text stand around each sequence.

    Args:
        loaded: the model.
        count: how many sequences.
        length: tokens that are repeated, at most; less where the model takes fewer than twice as many.
        seed: of the draws.

    Raises:
        InputError: no sequence is asked for, or the model takes too few tokens.

    Example:
        >>> import regard
        >>> [ids] = repeated_tokens(regard.load().loaded, 1, length=4)
        >>> len(ids), ids[0], ids[-1], ids[1:4] == ids[5:8] or ids[1:5] == ids[5:9]
        (10, 101, 102, True)
    """
    count = whole("count", count, least=1)
    length = whole("length", length, least=4)
    rng = np.random.default_rng(whole("seed", seed, least=0))
    network, tokenizer = loaded.network, loaded.tokenizer
    limits = [limit for kind in network.prefixes if (limit := network.limit(kind)) is not None]
    before, after = ([], []) if tokenizer is None else _around(loaded)
    most = min([length, *((limit - len(before) - len(after)) // 2 for limit in limits)])
    if most < 4:
        raise InputError(
            f"the model must take at least 8 tokens beside the special ones, to say 4 of them twice; "
            f"{loaded.source.name} takes {min(limits)}."
        )
    rows = network.config.vocab_size
    plain = [each for each in range(rows) if tokenizer is None or not tokenizer.is_special(each)]

    def drawn() -> list[int]:
        size = int(rng.integers(3 * most // 4, most, endpoint=True))
        once = [plain[place] for place in rng.integers(len(plain), size=size)]
        return [*before, *once, *once, *after]

    # Not a generator of its own, which would refuse nothing before it is asked for the first.
    return (drawn() for _ in range(count))


def _around(loaded: Loaded) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a text."""
    tokens = loaded.require_tokenizer().encode("a").tokens
    own = [token.index for token in tokens if not token.special]
    first, last = (own[0], own[-1]) if own else (len(tokens), len(tokens))
    ids = [token.id for token in tokens]
    return ids[:first], ids[last + 1 :]
