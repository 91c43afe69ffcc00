"""All that is to be known for writing texts: the network, how tokens are chosen, where texts end."""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.decoding._beam import Beams, Watch, beam_search
from regard.decoding._choice import Choice, MostLikely
from regard.decoding._decoded import Decoded, Written
from regard.decoding._pieces import Pieces
from regard.decoding._reader import check_network, rows_of
from regard.decoding._rules import Model, Rules
from regard.decoding._speculation import Speculation, speculated
from regard.decoding._steps import Step, last_of, steps
from regard.models import Loaded, Network, Transformer
from regard.text import Tokenizer

How = Choice | Beams | Speculation
"""How tokens are chosen; guesses are greedy, and faster."""


@dataclass(frozen=True)
class Job:
    """A network with all that is to be known for writing texts."""

    network: Network
    tokenizer: Tokenizer
    rules: Rules
    choice: How
    count: int
    stops: tuple[str, ...]

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
    ) -> "Job":
        network = model.network if isinstance(model, Loaded) else model
        check_network(network, cached=isinstance(network, Transformer))
        choice = MostLikely() if choice is None else choice
        whole("count", count, least=1, most=choice.beams if isinstance(choice, Beams) else None)
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
        rules = _filled_up(Rules.of(model) if rules is None else rules, network, tokenizer)
        if max_length is not None:
            rules = replace(rules, max_length=max_length)
        return cls(network, tokenizer, rules, choice, count, stops)

    @property
    def two(self) -> bool:
        return len(self.network.prefixes) == 2

    @property
    def ways(self) -> int:
        """How many ways of a text run side by side."""
        return self.choice.beams if isinstance(self.choice, Beams) else self.count

    def encoded(self, texts: Sequence[str], places: Sequence[int]) -> list[list[int]]:
        """Sources in their frame; prompts without what would end them."""
        frame = self.tokenizer.bulk.frame()
        try:
            pieces = self.tokenizer.bulk.pieces(texts)
        except InputError as error:
            named = re.sub(r"^texts\[(\d+)\]", lambda at: f"texts[{places[int(at[1])]}]", str(error))
            raise InputError(named) from error
        after = frame.after if self.two else ()
        rows = [[*frame.before, *row, *after] for row in pieces]
        longest = self.network.limit(next(iter(self.network.prefixes)))
        for place, row in zip(places, rows, strict=True):
            if longest is not None and len(row) > longest:
                raise InputError(
                    f"texts[{place}] must have at most {longest} tokens, the model's limit; got {len(row)}."
                )
        return rows

    def pieces(self, ids: Sequence[int]) -> Pieces:
        return Pieces(self.tokenizer.target, () if self.two else ids, self.stops)

    def written(self, prompt: str, ids: Sequence[int], way: Decoded) -> Written:
        return Written(
            prompt=prompt,
            text=self.pieces(ids).text(way.token_ids),
            token_ids=way.token_ids,
            log_probabilities=way.log_probabilities,
            score=way.score,
            ended=way.ended,
        )

    def run(self, rows: Sequence[Sequence[int]], watch: Watch | None = None) -> list[list[Decoded]]:
        choice, count = self.choice, self.count
        if not isinstance(choice, Beams):
            return last_of(self.steps(rows))
        how: dict[str, Any] = {"counts": choice.counts, "exhaustive": choice.exhaustive}
        return beam_search(
            self.network, rows, beams=choice.beams, best=count, watch=watch, **how, **self._common(rows)
        )

    def steps(self, rows: Sequence[Sequence[int]]) -> Generator[Step, None, list[list[Decoded]]]:
        choice = self.choice
        assert not isinstance(choice, Beams), "checked"
        if isinstance(choice, Speculation):
            return speculated(self.network, rows, guess=choice, rules=self.rules, until=self._until(rows))
        return steps(self.network, rows, choice=choice, count=self.count, **self._common(rows))

    def _common(self, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
        until, cached = self._until(rows), isinstance(self.network, Transformer)
        return {"rules": self.rules, "until": until, "cached": cached}

    def _until(self, rows: Sequence[Sequence[int]]) -> Callable[[int, Sequence[int]], bool] | None:
        if not self.stops:
            return None
        pieces = [self.pieces(ids) for ids in rows]
        return lambda text, new: pieces[text].has_stop(new)


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
