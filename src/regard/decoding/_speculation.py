"""Several tokens a step: what comes next is guessed cheaply, and the network reads all guesses at once.

Reading five tokens takes about as long as reading one, since the time is that of reading the weights. A guess
is taken where the network itself would have written it, and the first wrong one is replaced by what it would
have written: the text is the greedy one.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch

from regard.core.arguments import Count, Limited
from regard.core.errors import InputError
from regard.decoding._reader import Reader, at_best
from regard.decoding._rules import Model, Rules
from regard.decoding._steps import Decoded, Growing, Step, Until, last_of
from regard.models import Loaded

Next = Callable[[Sequence[int], int], Sequence[int]]
"""From what the decoder has read of a text, and a largest number, to guesses of the next tokens."""


@runtime_checkable
class Speculation(Protocol):
    """What guesses tokens.

    Attributes:
        tokens: how many at a time, at most.
    """

    @property
    def tokens(self) -> int:
        """See the class."""
        ...

    def of(self, source: Sequence[int]) -> Next:
        """What guesses along one text: of this prompt or, where an encoder reads it, of this source."""
        ...


@dataclass(frozen=True)
class Lookup(Limited):
    """Guess the tokens that followed the same tokens earlier, in the text so far or in an encoder's source.

    For texts that repeat what was given: answers that quote, corrections, code, summaries. Without such it
    costs next to nothing.

    Args:
        tokens: how many to guess at a time.
        longest: so many of the last tokens are looked for, then fewer; the latest place counts.

    Raises:
        InputError: a number below 1.

    Example:
        >>> from regard import Lookup
        >>> guess = Lookup(tokens=3).of([7, 1, 2, 3, 4, 5])
        >>> guess([7, 1, 2, 3, 4, 5, 9, 1, 2], 3)
        [3, 4, 5]

    Source: Saxena 2023, "Prompt lookup decoding"; Yang et al. 2023, arXiv 2304.04487, section 3.
    """

    tokens: Count = 8
    longest: Count = 3

    def of(self, source: Sequence[int]) -> Next:
        """See `Speculation`."""

        def following(read: Sequence[int], most: int) -> Sequence[int]:
            # The longest match first, then the latest place; the text before the source.
            for count in range(min(self.longest, len(read) - 1), 0, -1):
                last = list(read[-count:])
                for text in (list(read), list(source)):
                    # From the end: what was said last is likeliest to go on in the same way.
                    for at in range(len(text) - count - 1, -1, -1):
                        if text[at : at + count] == last:
                            return text[at + count : at + count + most]
            return []

        return following


@dataclass(frozen=True, eq=False)
class Draft(Limited):
    """Let a smaller model with the same vocabulary guess the next tokens.

    Args:
        model: a decoder; for an encoder-decoder another encoder-decoder.
        tokens: how many to guess at a time.

    Raises:
        InputError: a number below 1.

    Source: Leviathan et al. 2023, arXiv 2211.17192, section 2.3, with greedy choices.
    """

    model: Model = field(repr=False)
    tokens: Count = 4

    def of(self, source: Sequence[int]) -> Next:
        """See `Speculation`."""
        # The draft reads the text with its own state.
        network = self.model.network if isinstance(self.model, Loaded) else self.model
        start = (0,) if len(network.prefixes) == 2 else ()  # the real one is handed in with the rest
        reader = Reader(network, [source], Rules(start_ids=start, max_length=1), back=self.tokens)
        known: list[int] = []

        def following(read: Sequence[int], most: int) -> Sequence[int]:
            # The draft may have a shorter limit than the model.
            limit = network.limit("decoder")
            most = most if limit is None else min(most, limit - len(read))
            # What it has read stands as far as it agrees; the last token is read anew, for its logits.
            same = 0
            while same < min(len(known), len(read) - 1) and known[same] == read[same]:
                same += 1
            # What the model did not take is forgotten.
            del known[same:]
            guessed: list[int] = []
            new = list(read[same:])
            # Greedy, one token after the other: the draft is small.
            while len(guessed) < most:
                logits = reader.logits_of(new, len(known), 1)
                known.extend(new)
                new = [int(logits[-1].argmax())]
                guessed += new
            return guessed

        return following


@torch.no_grad()
def speculate(
    model: Model,
    texts: Sequence[Sequence[int]],
    *,
    guess: Speculation,
    rules: Rules | None = None,
    until: Until | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[Decoded]:
    """What `greedy` writes, in fewer steps.

    A step reads the last token and the guesses g_1 .. g_n after it, which gives y_1 .. y_n+1, the likeliest
    tokens; y_1 .. y_k+1 are written, where g_1 = y_1 .. g_k = y_k. Each text runs by itself, since texts
    would take different numbers of guesses.

    Args:
        model, texts, rules, until, prefixes: as in `greedy`.
        guess: `Lookup()`, `Draft(model)`, or anything that guesses.

    Raises:
        InputError: as `greedy`; a network whose keys and values cannot be kept.
        RegardError: logits that are no numbers.

    Example:
        >>> from regard import Lookup
        >>> from regard.decoding import Rules, speculate
        >>> from regard.decoding import greedy
        >>> from regard.models.families.gpt2 import Gpt2Config, build
        >>> config = Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> network, rules = build(config).eval(), Rules(max_length=9)
        >>> (text,) = speculate(network, [[3, 1, 4, 1, 5]], guess=Lookup(), rules=rules)
        >>> text.token_ids == greedy(network, [[3, 1, 4, 1, 5]], rules=rules)[0].token_ids
        True

    Source: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1, with greedy choices.
    """
    taken = speculated(model, texts, guess=guess, rules=rules, until=until, prefixes=prefixes)
    return [way for (way,) in last_of(taken)]


@torch.no_grad()
def speculated(
    model: Model,
    texts: Sequence[Sequence[int]],
    *,
    guess: Speculation,
    rules: Rules | None = None,
    until: Until | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> Generator[Step, None, list[list[Decoded]]]:
    """As `speculate`, token by token; arguments as there, yields and returns as of `steps`."""
    rules = Rules.of(model) if rules is None else rules
    network = model.network if isinstance(model, Loaded) else model
    if isinstance(guess, Draft):
        _check_draft(guess, network.config.vocab_size, len(network.prefixes))
    # All texts are checked before the first is written.
    # Uncached: it checks, and reads nothing.
    rules = Reader(network, texts, rules, prefixes=prefixes, cached=False).rules
    network = at_best(network)
    answers = []
    for place, text in enumerate(texts):
        begun = None if prefixes is None else prefixes[place : place + 1]
        # Text by text: rows would agree with their guesses at different lengths.
        reader = Reader(network, [text], rules, prefixes=begun)
        growing = Growing(rules, reader.limits[0], place, until)
        one = yield from _one(reader, text, guess, rules, growing, place)
        answers.append([one])
    return answers


def _one(
    reader: Reader, text: Sequence[int], guess: Speculation, rules: Rules, growing: Growing, place: int
) -> Generator[Step, None, Decoded]:
    (limit,), device = reader.limits, reader.read.device
    begun: list[int] = reader.read[0].tolist()
    following = guess.of(text)
    # How much of the text the state holds.
    kept = 0
    while True:
        read = begun + growing.token_ids
        # Nothing after the prompt, whose logits would all have to be worked out.
        most = min(guess.tokens, limit - len(growing.token_ids) - 1) if kept else 0
        # One pass over what is new and all guesses: the logits after each.
        guesses = list(following(read, most)) if most else []
        logits = reader.logits_of(read[kept:] + guesses, kept, 1 + len(guesses))
        kept = len(read)
        # Each guess is kept while it is what the model itself would write.
        for row, guessed in zip(logits, [*guesses, None], strict=True):
            # Rules see the text as it is at this token.
            before = torch.tensor([begun + growing.token_ids], device=device)
            scores = rules.apply(row[None], before, len(growing.token_ids), [limit])
            token = int(scores.argmax())
            done = growing.add(token, float(scores[0, token]))
            yield Step([place], [token], scores)
            if done is not None:
                return done
            # The logits behind a wrong guess are of another text.
            if token != guessed:
                break
            kept += 1


def _check_draft(draft: Draft, vocab_size: int, stacks: int) -> None:
    network = draft.model.network if isinstance(draft.model, Loaded) else draft.model
    # Ids must mean the same tokens to both.
    if network.config.vocab_size != vocab_size or len(network.prefixes) != stacks:
        kinds = {1: "a decoder", 2: "an encoder-decoder"}
        raise InputError(
            f"guess must be {kinds[stacks]} with the model's {vocab_size} tokens; its draft is "
            f"{kinds[len(network.prefixes)]} with {network.config.vocab_size}."
        )
