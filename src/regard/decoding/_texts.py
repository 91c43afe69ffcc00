"""Texts in, texts out: in batches of like lengths, in the order given, or one as it is written.

Or many as they are written, token by token, each way of each text by itself.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from regard.core.arguments import whole
from regard.core.errors import InputError, RegardError
from regard.decoding._beam import Beams
from regard.decoding._choice import Choice
from regard.decoding._job import Given, How, Job, at_rest
from regard.decoding._reader import AFTER_PROMPT, rows_of
from regard.decoding._rules import Model, Rules
from regard.decoding._speculation import Speculation
from regard.decoding._steps import Step, Written
from regard.models import Transformer
from regard.text import Tokenizer

BATCH_TOKENS = 4096
"""Tokens that are read side by side by default, all beams counted."""


def decode_texts(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    choice: How | None = None,
    count: int = 1,
    stop: str | Sequence[str] = (),
    max_length: int | None = None,
    rules: Rules | None = None,
    prefix: str | Sequence[str] = "",
    batch_tokens: int = BATCH_TOKENS,
    advance: Callable[[int], None] | None = None,
) -> list[list[Written]]:
    """What a network writes after texts: translations by an encoder-decoder, continuations by a decoder.

    Dropout is off meanwhile, also of a network that is being trained. Texts of like lengths run together,
    each as if alone, and a finished one makes way.

    Args:
        model: the network, or a checkpoint with its files.
        tokenizer: its tokenizer.
        texts: sources, or prompts; of a blank one, "" comes out.
        choice: how it is written: `MostLikely()`, the default, `Sampling(...)`, `Beams(...)`, or `Lookup()`
            and `Draft(model)`, which write the greedy text in fewer steps.
        count: how many ways of each: that many are drawn, or are the best of the beams.
        stop: texts before which a text ends, found also where they are parts of tokens.
        max_length: new tokens at most; by default as in `Rules`, of which it is one.
        rules: by default what the model says; where they name no start or end, the tokenizer's are taken.
        prefix: how each translation begins, or a list with one for each text, "" for any: its decoder reads
            it as if it had written it, after `Rules.first_id`. It is part of the text that comes out, not of
            its tokens.
        batch_tokens: how many tokens run together at most: texts times ways times the length of the
            longest, to which what a decoder may write after a prompt is added.
        advance: called after each batch with the number of texts that are done.

    Returns:
        For each text its ways, in the order given: the best first, or as they were drawn.

    Raises:
        InputError: a network that cannot write, a text that is too long; the message says which. More ways
            than there are.

    Example:
        >>> from regard.decoding import decode_texts
        >>> from regard.text import Tokenizer
        >>> from tokenizers import Tokenizer as Backend, models, pre_tokenizers
        >>> from regard.models.families.bart import build, original_transformer
        >>> backend = Backend(models.WordLevel({"<pad>": 0, "</s>": 1, "ein": 2, "Haus": 3}, "<pad>"))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> tokenizer = Tokenizer.from_str(backend.to_str())
        >>> config = original_transformer(4, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> written = decode_texts(build(config), tokenizer, ["Haus", " ", "ein Haus"], max_length=5)
        >>> len(written), written[1][0].text
        (3, '')
    """
    whole("batch_tokens", batch_tokens, least=1)
    if not isinstance(prefix, str) and len(prefix) != len(texts):
        raise InputError(f"prefix must be a text, or one for each of {len(texts)} texts; got {len(prefix)}.")
    job = Job.planned(model, tokenizer, texts, choice, count, stop, max_length, rules, prefix)
    # Blank texts get a blank answer, without a pass.
    named = [place for place, text in enumerate(texts) if text.strip()]
    encoded = dict(zip(named, job.encoded([texts[place] for place in named], named), strict=True))
    nothing = Written(prompt="", text="", token_ids=(), log_probabilities=(), score=0.0, ended=True)
    written = [[replace(nothing, prompt=text)] for text in texts]
    # What follows a prompt is kept beside it; a translation is about as long as its source.
    more = 0 if job.two else job.rules.max_length or AFTER_PROMPT
    with at_rest(job.network):
        lengths = {place: len(each.ids) + len(each.begun) + more for place, each in encoded.items()}
        # One by one: other libraries' decoders count padding as positions, and so would edits.
        begun_apart = not isinstance(prefix, str) and not isinstance(job.network, Transformer)
        if begun_apart or job.network.bound is not None:
            batch_tokens = 1
        # Each way of a text is a row.
        for batch in _batches(lengths, batch_tokens // job.ways):
            for place, ways in zip(batch, job.run([encoded[place] for place in batch]), strict=True):
                # In the order of the caller, whatever the order of the batches.
                written[place] = [job.written(texts[place], encoded[place], way) for way in ways]
            if advance is not None:
                advance(len(batch))
    return written


def stream(
    model: Model,
    tokenizer: Tokenizer,
    text: str,
    *,
    choice: Choice | Speculation | None = None,
    stop: str | Sequence[str] = (),
    max_length: int | None = None,
    rules: Rules | None = None,
    prefix: str = "",
) -> Generator[str, None, Written]:
    """What a network writes after one text, as it is written.

    Yields:
        Pieces of the text that `decode_texts` gives with the same arguments, which they join to: never half a
        character, and nothing of a stop. Closing the generator ends the writing.

    Returns:
        The whole, as the generator's value.

    Raises:
        InputError: as `decode_texts`, before anything is written; beams, which have no text before the end.
        RegardError: the tokenizer altered text that had been given out.
    """
    if isinstance(choice, Beams):
        raise InputError("choice must not be Beams: their text is known only at the end; use generate.")
    job = Job.planned(model, tokenizer, [text], choice, 1, stop, max_length, rules, prefix)
    (encoded,) = job.encoded([text], [0])
    return _streamed(job, text, encoded)


def _streamed(job: Job, prompt: str, row: Given) -> Generator[str, None, Written]:
    pieces, shown, tokens = job.pieces(row), "", []
    with at_rest(job.network):
        taken = job.steps([row])
        while True:
            try:
                tokens += next(taken).tokens
            except StopIteration as end:
                written = job.written(prompt, row, end.value[0][0])
                break
            # Only what can no longer change is given out.
            settled = pieces.settled([id for id in tokens if id not in job.rules.end_ids])
            if len(settled) > len(shown):
                _check(settled, shown)
                yield settled[len(shown) :]
                shown = settled
    # At the end the rest, which no longer waits for a stop.
    _check(written.text, shown)
    if len(written.text) > len(shown):
        yield written.text[len(shown) :]
    return written


def _check(text: str, given: str) -> None:
    if not text.startswith(given):
        raise RegardError("the tokenizer altered text that was written before; use generate, not stream.")


# Logits have a row a text, however short it is: so many tokens a text counts for at least.
_SHORTEST = 16


def _batches(lengths: dict[int, int], tokens: int) -> Iterator[list[int]]:
    """Texts of like lengths, the longest first: memory that does not suffice shows at once."""
    # Like lengths together: little padding.
    order = sorted(lengths, key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        count = max(1, tokens // max(_SHORTEST, lengths[order[start]]))
        yield order[start : start + count]
        start += count


_BROKEN = "\N{REPLACEMENT CHARACTER}"


class Token(NamedTuple):
    """A token: its text after those before it, where that begins in all that was written, and its log p."""

    id: int
    text: str
    start: int
    log_probability: float


class Added(NamedTuple):
    """What a step adds to one way of a text.

    Attributes:
        way: its number, `count` times the text's plus which of its ways.
        text: what no later token changes; never half a character, and nothing of a stop.
        token: what was written; None where it ended, by a token of its own or before.
        likeliest: tokens that could have come in its place, the likeliest first.
        end: "stop" at its end or before a stop, "length" at the most tokens, "" while it goes on.
    """

    way: int
    text: str
    token: Token | None = None
    likeliest: tuple[Token, ...] = ()
    end: Literal["", "stop", "length"] = ""


def along(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[int]],
    *,
    choice: Choice | None = None,
    count: int = 1,
    stop: str | Sequence[str] = (),
    rules: Rules | None = None,
    top: int = 0,
) -> tuple[list[list[int]], Generator[list[Added], None, None]]:
    """Write texts, and give what each step adds to each of their ways.

    Args:
        model, tokenizer, choice, count, stop, rules: as of `decode_texts`.
        texts: sources or prompts, or their ids.
        top: how many of the likeliest tokens are told of each step.

    Returns:
        The ids that are read of each text, and the steps. Closing the generator ends the writing.

    Raises:
        InputError: as `decode_texts`, before anything is written; an id that the model does not have; beams
            and guesses.
    """
    if isinstance(choice, Beams | Speculation):
        raise InputError("choice must take one token after another, as Sampling does; use generate.")
    job = Job.planned(model, tokenizer, texts, choice, count, stop, None, rules, "")
    if len(texts) > 1 and job.network.bound is not None:
        raise InputError(
            f"texts must be one where an edit means certain positions or words, as {job.network.bound} does; "
            f"got {len(texts)}."
        )
    # Ids are taken as they are, without a frame.
    encoded = [_given(job, text, place) for place, text in enumerate(texts)]
    return [each.ids for each in encoded], _along(job, encoded, top)


def _given(job: Job, text: str | Sequence[int], place: int) -> Given:
    if isinstance(text, str):
        (given,) = job.encoded([text], [place])
        return given
    size = rows_of(job.network)
    if odd := [id for id in text if not 0 <= id < size]:
        raise InputError(f"texts[{place}] must be ids from 0 to {size - 1}; got {odd[0]}.")
    return Given(list(text), [])


def _along(job: Job, given: Sequence[Given], top: int) -> Generator[list[Added], None, None]:
    ways = [_Way(job, given[place // job.count], place, top) for place in range(len(given) * job.count)]
    # Ways that were written in the step before.
    going: list[int] = []
    with at_rest(job.network):
        for step in job.steps(given):
            # A way that is missing from a step ended in the one before.
            ended = [ways[place].ended() for place in going if place not in step.ways]
            yield ended + [ways[place].add(step, row) for row, place in enumerate(step.ways)]
            going = step.ways
        # After the last step all have ended.
        yield [ways[place].ended() for place in going]


class _Way:
    """One way of a text, as far as it is written."""

    def __init__(self, job: Job, given: Given, place: int, top: int) -> None:
        self._pieces = job.pieces(given)
        # Tokens are spelled after all that was written, what stops it included.
        self._plain = replace(job, stops=()).pieces(given)
        self._tokenizer, self._ends = job.tokenizer.target, job.rules.end_ids
        self._place, self._top = place, top
        self._ids: list[int] = []
        self._given = ""
        self._has_ended = False

    def add(self, step: Step, row: int) -> Added:
        token = step.tokens[row]
        if token in self._ends:
            self._has_ended = True
            return Added(self._place, "")
        # Where the new token's text begins.
        before = self._plain.text(self._ids)
        scores = step.scores[row]
        best = scores.topk(min(self._top, len(scores)))
        # Each as it would read in this place.
        likeliest = tuple(
            Token(id, self._spelled(id, before), len(before), score)
            for id, score in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        )
        written = Token(token, self._spelled(token, before), len(before), float(scores[token]))
        self._ids.append(token)
        return Added(self._place, self._new(self._pieces.settled(self._ids)), written, likeliest)

    def ended(self) -> Added:
        stopped = self._has_ended or self._pieces.has_stop(self._ids)
        # What was held back, a possible stop or half a character.
        rest = self._new(self._pieces.text(self._ids))
        return Added(self._place, rest, end="stop" if stopped else "length")

    def _new(self, text: str) -> str:
        # A tokenizer that alters what it gave before adds nothing.
        added = text[len(self._given) :] if text.startswith(self._given) else ""
        self._given += added
        return added

    def _spelled(self, id: int, before: str) -> str:
        """A token as it reads after those before it; as it is shown where it is no text by itself."""
        text = self._plain.text([*self._ids, id])
        added = text.removeprefix(before) if text.startswith(before) else _BROKEN
        return added if added and _BROKEN not in added else self._tokenizer.shown(id)
