"""A text and how it was written: a trace of what the model read, and the alternatives at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from regard.core.errors import RegardError
from regard.decoding._beam import Beams, Hypothesis
from regard.decoding._choice import MostLikely
from regard.decoding._job import How, Job, at_rest
from regard.decoding._reader import limit_of
from regard.decoding._rules import Rules
from regard.decoding._speculation import Speculation
from regard.decoding._steps import Decoded, Written
from regard.models import Loaded
from regard.text import Chat, Tokenizer, read_back

if TYPE_CHECKING:
    from regard.tracing import Keep, Trace
    from regard.views import Page

LIKELIEST = 5
"""Tokens that are told of each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An alternative token: its id, its text after the tokens before it, and its probability."""

    token_id: int
    text: str
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStep(Candidate):
    """A token that was written.

    Args:
        probability: the model's own, softmax of its logits, before any rule, temperature or filter.
        place: how many tokens were likelier.
        likeliest: the five likeliest tokens, the likeliest first.
    """

    place: int
    likeliest: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A token of one of the ways of a beam search.

    Args:
        parent: the branch that it goes on from, as a place among all; None at the first step.
        step: when it was written, from 0.
        token_id, text: the token.
        log_probability: of its way up to it, by which ways are kept.
        end: "on" where another goes on from it, "ended" with an end or a stop, "cut" at the length limit,
            "dropped" where others were likelier.
        won: whether it is part of the text that was returned.
    """

    parent: int | None
    step: int
    token_id: int
    text: str
    log_probability: float
    end: Literal["on", "ended", "cut", "dropped"]
    won: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Watched(Written):
    """A text that a model wrote, with how: in a notebook, and as a page, it is seen step by step.

    Args:
        trace: of one pass over all that was read and written. Each step equals that pass, which is checked:
            the log-probability that it gives to each token is the one that was noted while writing.
        steps: of each token that was written, the end included.
        branches: the ways of a beam search, step by step, the likeliest first; () of other ways to write.
        first: the first token that was written, as a place among the decoder's in `trace`.
        how: how tokens were chosen, in words.
    """

    trace: Trace
    steps: tuple[WrittenStep, ...]
    branches: tuple[Branch, ...]
    first: int
    how: str

    @property
    def _chat(self) -> Chat | None:
        return self.prompt if isinstance(self.prompt, Chat) else None

    def page(self, **options: Any) -> Page:
        """The interactive page: how it was written, and all that a trace's page has.

        Args:
            options: `heads` and `max_mb`, as in `Trace.page`.
        """
        # Only here, and in the methods below: a text that nobody watches needs no tracing.
        from regard.tracing import writing_page

        return writing_page(self.trace, self.facts(), chat=self._chat, **options)

    def write_page(self, path: str | PathLike[str], **options: Any) -> Page:
        """Write the page, whole or not at all; other arguments as in `page`.

        Raises:
            OutputError: the file cannot be written.
        """
        page = self.page(**options)
        page.write(path)
        return page

    def view(self) -> Any:
        """The same as a widget of a notebook, which shows it by itself: see `Trace.widget`."""
        from regard.tracing import writing_widget

        return writing_widget(self.trace, self.facts(), self._chat)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        del include, exclude
        from regard.tracing import writing_bundle

        return writing_bundle(self.trace, self.facts(), repr(self), self._chat)

    def _display_(self) -> Any:  # of marimo
        return self.view()

    def facts(self) -> dict[str, Any]:
        """All but the trace, for the page: plain values, see views/static/writing/steps.js."""
        return {
            "first": self.first,
            "how": self.how,
            # By an end token: it has a step, but is no token of the text.
            "ended": self.ended and len(self.steps) > len(self.token_ids),
            "steps": [
                {
                    "text": step.text,
                    "probability": _short(step.probability),
                    "place": step.place,
                    "likeliest": [[each.text, _short(each.probability)] for each in step.likeliest],
                }
                for step in self.steps
            ],
            "branches": [
                {
                    "parent": -1 if branch.parent is None else branch.parent,
                    "step": branch.step,
                    "text": branch.text,
                    "total": _short(branch.log_probability),
                    "end": branch.end,
                    "won": branch.won,
                }
                for branch in self.branches
            ]
            or None,
        }

    def to_json(self) -> dict[str, Any]:
        """Its fields as plain values, without the trace."""
        told = {"steps": list(map(asdict, self.steps)), "branches": list(map(asdict, self.branches))}
        return Written.to_json(self) | told


@torch.no_grad()
def watch_text(
    model: Loaded,
    tokenizer: Tokenizer,
    text: str,
    *,
    choice: How | None = None,
    stop: str | Sequence[str] = (),
    rules: Rules | None = None,
    prefix: str = "",
    keep: Keep = "qk",
) -> Watched:
    """Write one text as `decode_texts` does, and keep how.

    Nothing is kept while it is written but the ways of a beam search: with keys and values kept, each step
    equals one pass over the whole, so that the trace is of that pass.

    Args:
        model, tokenizer, text, choice, stop, rules, prefix: as in `decode_texts`.
        keep: what the trace keeps, as in `model.trace`.

    Raises:
        InputError: as `decode_texts`, or a trace that would not fit in memory.
        RegardError: the pass does not give the log-probabilities that were noted while writing.
    """
    from regard.tracing import KeepPolicy, rerun, trace_read

    job = Job.planned(model, tokenizer, [text], choice, 1, stop, None, rules, prefix)
    (encoded,) = job.encoded([text], [0])
    ids = encoded.ids
    if prefix:  # as where there are prefixes: nothing is forced after one
        job = replace(job, rules=replace(job.rules, first_id=None))
    # The ways of each step of a beam search; empty otherwise.
    seen: list[list[Hypothesis]] = []
    with at_rest(job.network):
        # Written as ever; then all of it is read once more, for the trace.
        ((way, *_),) = job.run([encoded], lambda _, ways: seen.append(ways))
        # What the decoder read before the first new token.
        start = [*job.rules.start_ids, *(encoded.begun if job.two else ids)]
        source, target = None, read_back([*start, *way.token_ids], tokenizer.target)
        if job.two:
            known = tokenizer.encode(text)
            # With the source's own spans where its tokens are those of the text.
            source = known if list(known.token_ids) == ids else read_back(ids, tokenizer)
        read = (target, None) if source is None else (source, target)
        trace = trace_read(model, *read, keeping=KeepPolicy(keep=keep))
        logits = rerun(trace, job.network, logits=True).logits
    assert logits is not None, "checked"
    # (new tokens, vocab_size): position n predicts n + 1.
    rows = logits[0, len(start) - 1 :][: len(way.log_probabilities)]
    # The trace must be of the text that was written: both give the same log p.
    written = _checked(job, ids, start, way, rows)
    spelled = _Speller(tokenizer.target, [*start, *written], len(start), fresh=job.two and not prefix)
    steps = _steps(rows, written, spelled)
    plain = job.written(text, encoded, way)
    return Watched(
        **{each.name: getattr(plain, each.name) for each in fields(plain)},
        trace=trace,
        steps=steps,
        branches=_branches(seen, written, spelled, limit=len(seen) == _limit(job, ids, start)),
        first=len(start),
        how=_said(job.choice),
    )


def _limit(job: Job, ids: Sequence[int], start: Sequence[int]) -> int:
    return limit_of(job.network, 0, len(ids), len(start), job.rules, two=job.two)


def _checked(job: Job, ids: Sequence[int], start: Sequence[int], way: Decoded, rows: Tensor) -> list[int]:
    """All tokens that were written, the end included, where the pass gives each its log-probability."""
    limit, written = _limit(job, ids, start), list(way.token_ids)
    # What an end was is not said: it is the one that has the log-probability.
    allowed = torch.finfo(rows.dtype).eps ** 0.5  # half of the digits that the type has
    # One more than tokens where an end was written.
    for place, noted in enumerate(way.log_probabilities):
        read = torch.tensor([[*start, *written[:place]]], device=rows.device)
        wide = rows[place : place + 1].to(torch.promote_types(rows.dtype, torch.float32)).clone()
        # By the same rules as while it was written.
        scores = job.rules.apply(wide, read, place, [limit])[0]
        if place == len(written):
            written.append(min(job.rules.end_ids, key=lambda end: abs(float(scores[end]) - noted)))
        of_pass = float(scores[written[place]])
        if not abs(of_pass - noted) <= allowed * max(1.0, abs(noted)):
            raise RegardError(
                f"the trace is not of this text: one pass gives token {place} the log-probability "
                f"{of_pass:.6f}, and {noted:.6f} was noted while it was written."
            )
    return written


class _Speller:
    """Tokens as text after what stood before them: "bank", and "…ing" where a word goes on."""

    def __init__(self, tokenizer: Tokenizer, ids: Sequence[int], first: int, *, fresh: bool) -> None:
        self._tokenizer, self._ids, self._first, self.fresh = tokenizer, ids, first, fresh
        self.start = list(ids[:first])

    def __call__(self, token_id: int, place: int) -> str:
        """The text of another token in the place of the one that was written at that step."""
        return self.after(self._ids[: self._first + place], token_id, fresh=self.fresh and place == 0)

    def after(self, before: Sequence[int], token_id: int, *, fresh: bool = False) -> str:
        tokenizer = self._tokenizer
        piece = tokenizer.shown(token_id)
        if tokenizer.is_special(token_id):
            return piece
        # Four tokens are enough to tell how the next one joins on.
        known = tokenizer.decode(before[-4:], skip_special=True)
        text = tokenizer.decode([*before[-4:], token_id], skip_special=True)
        added = text[len(known) :] if text.startswith(known) else ""
        if not added.strip() or "\N{REPLACEMENT CHARACTER}" in added:
            return piece
        # Letter after letter: the word goes on.
        goes_on = bool(known) and not fresh and added[0].isalnum() and known[-1].isalnum()
        return f"…{added}" if goes_on else added.strip()


def _steps(rows: Tensor, written: Sequence[int], spelled: _Speller) -> tuple[WrittenStep, ...]:
    steps = []
    for place, (row, token) in enumerate(zip(rows, written, strict=True)):
        # Probabilities before rules: what the model itself thought.
        shares = row.double().softmax(dim=0)
        best = shares.topk(min(LIKELIEST, len(shares)))
        pairs = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        own = float(shares[token])
        # Equal shares rank as they are listed.
        listed = [id for id, _ in pairs]
        # Its place among all tokens, 0 for the likeliest.
        rank = listed.index(token) if token in listed else int((shares > own).sum())
        steps.append(
            WrittenStep(
                token_id=token,
                text=spelled(token, place),
                probability=own,
                place=rank,
                likeliest=tuple(
                    Candidate(token_id=id, text=spelled(id, place), probability=share) for id, share in pairs
                ),
            )
        )
    return tuple(steps)


def _branches(
    seen: Sequence[Sequence[Hypothesis]], written: Sequence[int], spelled: _Speller, *, limit: bool
) -> tuple[Branch, ...]:
    """The ways of a search as a tree: each is its parent's with a token more."""
    places: dict[tuple[int, ...], int] = {}
    # The likeliest of each step first.
    ways = [way for stayed in seen for way in sorted(stayed, key=lambda way: -way.log_probability)]
    for way in ways:
        places[way.token_ids] = len(places)
    # Ways from which another came.
    parents = {way.token_ids[:-1] for way in ways}
    branches = []
    for way in ways:
        *before, token = way.token_ids
        # In the last step at the limit nothing was dropped: it was cut.
        is_last = limit and len(way.token_ids) == len(seen)
        end: Literal["on", "ended", "cut", "dropped"] = "cut" if is_last else "dropped"
        if way.ended or way.token_ids in parents:
            end = "ended" if way.ended else "on"
        branches.append(
            Branch(
                parent=places.get(tuple(before)),
                step=len(before),
                token_id=token,
                text=spelled.after([*spelled.start, *before], token, fresh=spelled.fresh and not before),
                log_probability=way.log_probability,
                end=end,
                won=list(way.token_ids) == list(written[: len(way.token_ids)]),
            )
        )
    return tuple(branches)


def _said(choice: How) -> str:
    if isinstance(choice, MostLikely | Speculation):
        return "The likeliest is taken."
    if isinstance(choice, Beams):
        return f"Several ways are followed, {choice.beams} beams; the likeliest text wins."
    return f"It is drawn by chance: {choice}."


def _short(value: float) -> float:
    return float(f"{value:.6g}")
