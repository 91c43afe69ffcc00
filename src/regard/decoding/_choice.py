"""Which token comes next."""

from typing import Protocol

from torch import Tensor


class Choice(Protocol):
    """How the next token is chosen from its log-probabilities, in every row by itself."""

    def __call__(self, scores: Tensor, texts: Tensor, length: int) -> Tensor:
        """Choose.

        Args:
            scores: (rows, vocab_size), log-probabilities; -inf for what a rule forbids.
            texts: int64 (rows,), the number of each row's text, so that chance need not depend on who else
                is in the batch.
            length: how many new tokens there are.

        Returns:
            int64 (rows,).
        """
        ...


class MostLikely:
    """The most likely token, the first of equals: greedy decoding."""

    def __call__(self, scores: Tensor, texts: Tensor, length: int) -> Tensor:
        """See `Choice`."""
        del texts, length
        return scores.argmax(dim=1)
