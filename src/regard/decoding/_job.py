"""All that is to be known for writing texts: network, choice of tokens (or the model's own), ends."""

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import nn

from regard.core.arguments import whole
from regard.core.errors import CheckpointError, InputError
from regard.decoding._beam import Beams, Power, Watch, beam_search
from regard.decoding._choice import Choice, MostLikely, Sampling
from regard.decoding._reader import check_network, rows_of
from regard.decoding._rules import Model, Rules, refused, said
from regard.decoding._speculation import Speculation, speculated
from regard.decoding._steps import Decoded, Pieces, Step, Written, last_of, steps
from regard.models import Loaded, Network, Transformer
from regard.text import Chat, Tokenizer

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
    def planned(
        cls,
        model: Model,
        tokenizer: Tokenizer,
        texts: Sequence[str | Sequence[int]],
        choice: How | None,
        count: int,
        stop: str | Sequence[str],
        max_length: int | None,
        rules: Rules | None,
        prefix: str | Sequence[str],
    ) -> "Job":
        # All checks before the first text is read.
        network = model.network if isinstance(model, Loaded) else model
        # Networks of other libraries keep no state of ours.
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
        # One text stands for a tuple of one; anything else is refused below.
        one = isinstance(stop, str) or not isinstance(stop, Iterable)
        stops: tuple[Any, ...] = (stop,) if one else tuple(stop)
        if not all(isinstance(each, str) and each for each in stops):
            raise InputError(f"stop must be texts of at least one character; got {stop!r}.")
        # The call's limit before that of the checkpoint or of `rules`.
        most: dict[str, Any] = {} if max_length is None else {"max_length": max_length}
        rules = Rules.of(model, **most) if rules is None else replace(rules, **most)
        if prefix and len(network.prefixes) == 1:
            raise InputError("prefix must be left out: this model has no source, so give it with the text.")
        # What the checkpoint's files leave open, the tokenizer knows.
        rules = _filled_up(rules, network, tokenizer, _ends_of(texts, tokenizer))
        return cls(network, tokenizer, rules, choice, count, stops, prefix)

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
        # [CLS] and [SEP], or what a model has for them.
        frame = self.tokenizer.bulk.frame()
        # An end behind a prompt would end it: only sources have one.
        after = frame.after if self.two else ()
        rows = [
            # A chat's template has written the special tokens already.
            row if isinstance(text, Chat) else [*frame.before, *row, *after]
            for text, row in zip(texts, _cut(self.tokenizer, texts, "texts", places), strict=True)
        ]
        longest = self.network.limit(next(iter(self.network.prefixes)))
        for place, row in zip(places, rows, strict=True):
            if longest is not None and len(row) > longest:
                raise InputError(
                    f"texts[{place}] must have at most {longest} tokens, the model's limit; got {len(row)}."
                )
        prefix = self.prefix
        begins = [prefix if isinstance(prefix, str) else prefix[place] for place in places] if prefix else []
        # A language mark that must come first comes before the prefix too.
        forced = [] if self.rules.first_id is None else [self.rules.first_id]
        begun = [[*forced, *row] for row in _cut(self.tokenizer.target, begins, "prefix", places)]
        return [Given(*each) for each in zip(rows, begun or [[]] * len(rows), strict=True)]

    def pieces(self, given: Given) -> Pieces:
        # A source is no part of what is written: its tokens give the first word no blank.
        return Pieces(self.tokenizer.target, () if self.two else given.ids, self.stops, given.begun)

    def written(self, prompt: str, given: Given, way: Decoded) -> Written:
        return Written(
            prompt=prompt,
            prompt_ids=tuple(given.ids),
            text=self.pieces(given).text(way.token_ids),
            token_ids=way.token_ids,
            log_probabilities=way.log_probabilities,
            score=way.score,
            ended=way.ended,
        )

    def run(self, given: Sequence[Given], watch: Watch | None = None) -> list[list[Decoded]]:
        choice, count = self.choice, self.count
        if not isinstance(choice, Beams):
            # Greedy, sampled or guessed: all go step by step.
            return last_of(self.steps(given))
        # A search is over whole texts, and has no steps to give.
        how: dict[str, Any] = {"counts": choice.counts, "exhaustive": choice.exhaustive}
        how |= self._common(given)
        rows = [each.ids for each in given]
        return beam_search(self.network, rows, beams=choice.beams, best=count, watch=watch, **how)

    def steps(self, given: Sequence[Given]) -> Generator[Step, None, list[list[Decoded]]]:
        choice, rows, common = self.choice, [each.ids for each in given], self._common(given)
        assert not isinstance(choice, Beams), "checked"
        if isinstance(choice, Speculation):
            # Guesses are checked against what is kept: without that there is no gain.
            del common["cached"]
            return speculated(self.network, rows, guess=choice, **common)
        return steps(self.network, rows, choice=choice, count=self.count, **common)

    def _common(self, given: Sequence[Given]) -> dict[str, Any]:
        until, cached = self._until(given), isinstance(self.network, Transformer)
        # None where nothing is forced, so that `first_id` still holds.
        prefixes = [each.begun for each in given] if self.prefix else None
        return {"rules": self.rules, "until": until, "prefixes": prefixes, "cached": cached}

    def _until(self, given: Sequence[Given]) -> Callable[[int, Sequence[int]], bool] | None:
        if not self.stops:
            return None
        # One for each text: what stands before decides how its tokens read.
        pieces = [self.pieces(each) for each in given]
        return lambda text, new: pieces[text].has_stop(new)


def _cut(tokenizer: Tokenizer, texts: Sequence[str], name: str, places: Sequence[int]) -> list[list[int]]:
    """Texts as ids without special tokens; a blank text has none."""
    # Places in the caller's list: errors name those.
    full = [place for place, text in zip(places, texts, strict=False) if text.strip()]
    try:
        rows = iter(tokenizer.bulk.pieces([text for text in texts if text.strip()]))
    except InputError as error:
        message = re.sub(r"^texts\[(\d+)\]", lambda at: f"{name}[{full[int(at[1])]}]", str(error))
        raise InputError(message) from error
    return [list(next(rows)) if text.strip() else [] for text in texts]


def _ends_of(texts: Sequence[str | Sequence[int]], tokenizer: Tokenizer) -> tuple[int, ...]:
    """What ends an answer, where texts are chats: their template says so, whatever else may end a text."""
    # One set of ends holds for the whole batch.
    ends = {text.ends if isinstance(text, Chat) else () for text in texts}
    if len(ends) > 1:
        raise InputError("texts must all be chats of one template, or none of them; write them apart.")
    return tuple(tokenizer.target.id_of(end) for each in ends for end in each)


def _filled_up(rules: Rules, network: Network, tokenizer: Tokenizer, ends: tuple[int, ...]) -> Rules:
    """The rules with what the tokenizer knows, and more ends."""
    target = tokenizer.target
    rules = replace(rules, end_ids=tuple(dict.fromkeys((rules.end_ids or target.end_ids) + ends)))
    if len(network.prefixes) == 2 and not rules.start_ids:  # mBART: the mark of the language, the last token
        rules = replace(rules, start_ids=target.bulk.frame().after[-1:])
    # A table is often longer than the vocabulary; what lies beyond is no text.
    unknown = (id for id in range(rows_of(network)) if target.piece_of(id) is None)
    new = tuple(id for id in unknown if id not in rules.end_ids)
    return replace(rules, forbidden_ids=rules.forbidden_ids + new)


@contextmanager
def at_rest(network: nn.Module) -> Iterator[None]:
    """Within it dropout is off; afterwards every module is as it was."""
    # Parts may be in different modes, as where an encoder is frozen.
    before = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def recommended(model: Loaded, *, seed: int = 0) -> Choice | Beams:
    """The way of choosing that the files of a checkpoint name, with the defaults of `transformers`.

    Read are `do_sample` with `temperature`, `top_k` (50 unless given), `top_p`, `min_p`, `typical_p`,
    `epsilon_cutoff` and `eta_cutoff`, or else `num_beams` with `length_penalty` and `early_stopping` (false,
    the default, is the heuristic of `beam_search`; "never" is an exhaustive search). Nothing uses them
    unasked: regard writes greedily by default, whatever the checkpoint. Its rules (starts, ends, repetition,
    words that are forbidden) always hold, and the file that is read is the same: see `Rules.of`.

    Args:
        model: the checkpoint.
        seed: of sampling.

    Returns:
        `Sampling`, `Beams`, or `MostLikely` where nothing is said.

    Raises:
        CheckpointError: a file that cannot be read, a number out of range, or a way that is not offered:
            beams that are sampled or kept apart in groups, contrastive search, DoLa, top-h.

    Example:
        >>> from regard.decoding import recommended
        >>> from regard.models import load_checkpoint
        >>> recommended(load_checkpoint())
        MostLikely()
    """
    file, values = said(model)
    drawn, beams = values.get("do_sample", False), values.get("num_beams", 1)
    searched = beams != 1
    # Settings that transformers would obey here and regard does not offer.
    for name, asks in {
        "num_beams": searched and drawn,
        "num_beam_groups": searched and values.get("num_beam_groups", 1) != 1,
        "diversity_penalty": searched and values.get("diversity_penalty", 0) != 0,
        "renormalize_logits": searched and values.get("renormalize_logits", False),
        "dola_layers": not searched and "dola_layers" in values,
        "penalty_alpha": not (searched or drawn) and values.get("penalty_alpha", 0) != 0,
        "top_h": drawn and "top_h" in values,
    }.items():
        if asks:
            raise refused(file, name, values[name])
    try:
        if drawn:
            names = ("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
            # transformers' own default, which a file need not say.
            numbers: dict[str, Any] = {"top_k": 50} | {name: values[name] for name in names if name in values}
            numbers["top_k"] = numbers["top_k"] or None  # 0 is none
            return Sampling(**numbers, seed=seed)
        if not searched:
            return MostLikely()
        # transformers' names: true stops at once, false is its heuristic, "never" searches on.
        early, power = values.get("early_stopping", False), Power(values.get("length_penalty", 1.0))
        if early not in (False, True, "never"):
            raise InputError(f'early_stopping must be true, false or "never"; got {early!r}.')
        return Beams(beams, counts=power, exhaustive=early == "never" or (not early and "heuristic"))
    except InputError as error:
        raise CheckpointError(f"{file}: {error}") from error
