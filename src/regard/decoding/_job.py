"""All that is to be known for writing texts: the network, how tokens are chosen, where texts end."""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import nn

from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.decoding._beam import Beams, Watch, beam_search
from regard.decoding._choice import Choice, MostLikely
from regard.decoding._decoded import Decoded, Pieces, Written
from regard.decoding._reader import check_network, rows_of
from regard.decoding._rules import Model, Rules
from regard.decoding._speculation import Speculation, speculated
from regard.decoding._steps import Step, last_of, steps
from regard.models import Loaded, Network, Transformer
from regard.text import Tokenizer

How = Choice | Beams | Speculation
"""How tokens are chosen; guesses are greedy, and faster."""


class Given(NamedTuple):
    """One text as ids: the prompt or the source, and what its translation begins with."""

    ids: list[int]
    begun: list[int]


@dataclass(frozen=True)
class Job:
    """A network, how its tokens are chosen, and where its texts end."""

    network: Network
    tokenizer: Tokenizer
    rules: Rules
    choice: How
    count: int
    stops: tuple[str, ...]
    prefix: str | Sequence[str]

    @classmethod
    def of(
        cls,
        model: Model,
        tokenizer: Tokenizer,
        choice: How | None,
        count: int,
        stop: str | Sequence[str],
        max_length: int | None,
        rules: Rules | None,
        prefix: str | Sequence[str],
    ) -> "Job":
        network = model.network if isinstance(model, Loaded) else model
        check_network(network, cached=isinstance(network, Transformer))
        choice = MostLikely() if choice is None else choice
        whole("count", count, least=1)
        if isinstance(choice, Beams) and count > choice.beams:
            raise InputError(f"count must be at most the number of beams, {choice.beams}; got {count}.")
        if count > 1 and isinstance(choice, MostLikely | Speculation):
            raise InputError(
                f"count must be 1 for greedy decoding, which writes one text; got {count}. Give "
                "choice=Sampling() or choice=Beams()."
            )
        if isinstance(choice, type) or not (isinstance(choice, Beams | Speculation) or callable(choice)):
            raise InputError(f"choice must be Sampling(...), Beams(...) or Lookup(...); got {choice!r}.")
        if isinstance(choice, Speculation) and not isinstance(network, Transformer):
            raise InputError(
                "choice must not guess tokens for a model of another library, whose keys and values are not "
                "kept; leave it out."
            )
        one = isinstance(stop, str) or not isinstance(stop, Iterable)
        stops: tuple[Any, ...] = (stop,) if one else tuple(stop)
        if not all(isinstance(each, str) and each for each in stops):
            raise InputError(f"stop must be texts of at least one character; got {stop!r}.")
        most: dict[str, Any] = {} if max_length is None else {"max_length": max_length}
        rules = Rules.of(model, **most) if rules is None else replace(rules, **most)
        if prefix and len(network.prefixes) == 1:
            raise InputError("prefix must be left out: this model has no source, so give it with the text.")
        return cls(network, tokenizer, _filled_up(rules, network, tokenizer), choice, count, stops, prefix)

    @property
    def two(self) -> bool:
        return len(self.network.prefixes) == 2

    @property
    def ways(self) -> int:
        """How many ways of a text run side by side."""
        return self.choice.beams if isinstance(self.choice, Beams) else self.count

    def encoded(self, texts: Sequence[str], places: Sequence[int]) -> list[Given]:
        """Sources in their frame; prompts without what would end them; and what translations begin with."""
        if not all(text.strip() for text in texts):
            raise InputError("texts must hold a text to go on from; got a blank one.")
        frame = self.tokenizer.bulk.frame()
        after = frame.after if self.two else ()
        rows = [[*frame.before, *row, *after] for row in _cut(self.tokenizer, texts, "texts", places)]
        longest = self.network.limit(next(iter(self.network.prefixes)))
        for place, row in zip(places, rows, strict=True):
            if longest is not None and len(row) > longest:
                raise InputError(
                    f"texts[{place}] must have at most {longest} tokens, the model's limit; got {len(row)}."
                )
        prefix = self.prefix
        begins = [prefix if isinstance(prefix, str) else prefix[place] for place in places] if prefix else []
        forced = [] if self.rules.first_id is None else [self.rules.first_id]
        begun = [[*forced, *row] for row in _cut(self.tokenizer.target, begins, "prefix", places)]
        return [Given(*each) for each in zip(rows, begun or [[]] * len(rows), strict=True)]

    def pieces(self, given: Given) -> Pieces:
        return Pieces(self.tokenizer.target, () if self.two else given.ids, self.stops, given.begun)

    def written(self, prompt: str, given: Given, way: Decoded) -> Written:
        return Written(
            prompt=prompt,
            text=self.pieces(given).text(way.token_ids),
            token_ids=way.token_ids,
            log_probabilities=way.log_probabilities,
            score=way.score,
            ended=way.ended,
        )

    def run(self, given: Sequence[Given], watch: Watch | None = None) -> list[list[Decoded]]:
        choice, count = self.choice, self.count
        if not isinstance(choice, Beams):
            return last_of(self.steps(given))
        how: dict[str, Any] = {"counts": choice.counts, "exhaustive": choice.exhaustive}
        how |= self._common(given)
        rows = [each.ids for each in given]
        return beam_search(self.network, rows, beams=choice.beams, best=count, watch=watch, **how)

    def steps(self, given: Sequence[Given]) -> Generator[Step, None, list[list[Decoded]]]:
        choice, rows, common = self.choice, [each.ids for each in given], self._common(given)
        assert not isinstance(choice, Beams), "checked"
        if isinstance(choice, Speculation):
            del common["cached"]
            return speculated(self.network, rows, guess=choice, **common)
        return steps(self.network, rows, choice=choice, count=self.count, **common)

    def _common(self, given: Sequence[Given]) -> dict[str, Any]:
        until, cached = self._until(given), isinstance(self.network, Transformer)
        prefixes = [each.begun for each in given] if self.prefix else None
        return {"rules": self.rules, "until": until, "prefixes": prefixes, "cached": cached}

    def _until(self, given: Sequence[Given]) -> Callable[[int, Sequence[int]], bool] | None:
        if not self.stops:
            return None
        pieces = [self.pieces(each) for each in given]
        return lambda text, new: pieces[text].has_stop(new)


def _cut(tokenizer: Tokenizer, texts: Sequence[str], name: str, places: Sequence[int]) -> list[list[int]]:
    """Texts as ids without special tokens; a blank text has none."""
    full = [place for place, text in zip(places, texts, strict=False) if text.strip()]
    try:
        rows = iter(tokenizer.bulk.pieces([text for text in texts if text.strip()]))
    except InputError as error:
        told = re.sub(r"^texts\[(\d+)\]", lambda at: f"{name}[{full[int(at[1])]}]", str(error))
        raise InputError(told) from error
    return [list(next(rows)) if text.strip() else [] for text in texts]


def _filled_up(rules: Rules, network: Network, tokenizer: Tokenizer) -> Rules:
    """The rules with what the tokenizer knows."""
    target = tokenizer.target
    if not rules.end_ids and target.special_ids.eos is not None:
        rules = replace(rules, end_ids=(target.special_ids.eos,))
    if len(network.prefixes) == 2 and not rules.start_ids:  # mBART: the mark of the language, the last token
        rules = replace(rules, start_ids=target.bulk.frame().after[-1:])
    # A table is often longer than the vocabulary; what lies beyond is no text.
    unknown = (id for id in range(rows_of(network)) if target.piece_of(id) is None)
    new = tuple(id for id in unknown if id not in rules.end_ids)
    return replace(rules, forbidden_ids=rules.forbidden_ids + new)


@contextmanager
def at_rest(network: nn.Module) -> Iterator[None]:
    """Within it dropout is off; afterwards every module is as it was."""
    before = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
