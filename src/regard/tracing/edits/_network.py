"""A network whose forward passes write: the same network, parameters and all, with edits at its taps.

Many edits of one text, each by itself, run as rows of a batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from regard.core import Mask, Taps
from regard.core.arguments import whole
from regard.core.errors import InputError, RegardError
from regard.models import Change, Loaded, Network, Output, StackKind, as_mask
from regard.text import Encoding, Tokenizer, read_back
from regard.tracing.edits._edit import SITES, Edit, Part, Target, Texts, at_tap, captured, taps_of
from regard.tracing.record import Trace, numbers_of
from regard.tracing.run import check_mode, rerun


def edited(loaded: Loaded, edits: Sequence[Edit]) -> Loaded:
    """The model with edits; the model itself is left as it is: see `regard.Model.edited`.

    Raises:
        InputError: an edit that the model has no place for, or a network in training mode.
    """
    if not edits:
        raise InputError("edits must be at least one, such as regard.Zero('weights', layer=3, head=5).")
    for edit in edits:
        if not isinstance(edit, Edit):
            raise InputError(
                "edits must be regard.Write, Zero, Scale, Add, Replace, Mean, Resample, and those of a list "
                "given one by one, as in model.edited(*edits); got "
                f"{type(edit).__name__}."
            )
    check_mode(loaded.network)
    network = EditedNetwork(loaded.network, targets_of(loaded.network, edits), loaded.tokenizer)
    name = f"{loaded.source.name.removesuffix(' (edited)')} (edited)"
    return replace(loaded, network=network, source=replace(loaded.source, name=name))


def targets_of(network: Network, edits: Sequence[Edit]) -> list[Target]:
    """The taps that edits write, with what these traces have there, worked out once."""
    targets: list[Target] = []
    for edit in edits:
        # Site by site: a site may stand for a tap in each of several layers.
        if edit.site in SITES:
            site = SITES[edit.site]
            kind = site.kind(edit.kind, network)
            targets += [
                Target(edit=edit, site=site, kind=kind, layer=layer, tap=tap)
                for layer, tap in taps_of(site, kind, network, edit.layer).items()
            ]
            continue
        site, kind, layer = at_tap(edit.site, network)
        edit.check_choice(site)
        # The name of a tap says its layer and kind.
        for name in ("layer", "kind"):
            if getattr(edit, name) is not None:
                raise InputError(f"{name} must be None at the tap {edit.site!r}, whose name says it.")
        targets.append(Target(edit=edit, site=site, kind=kind, layer=layer, tap=edit.site))
    # By trace, so that each runs again once for all that edits take from it.
    wanted: dict[int, tuple[Trace, list[Any]]] = {}
    for target in targets:
        for trace in target.edit.traces():
            at = (target.site, target.kind, target.layer, target.tap)
            wanted.setdefault(id(trace), (trace, []))[1].append(at)
    sources = {number: captured(trace, taps) for number, (trace, taps) in wanted.items()}
    return [
        replace(target, sources=tuple(sources[id(trace)] for trace in target.edit.traces()))
        for target in targets
    ]


def _of_inner(name: str) -> Any:
    """The method of the network inside."""
    return lambda self, *arguments, **options: getattr(self.inner, name)(*arguments, **options)


class EditedNetwork(Network):
    """A network around another, whose taps it writes; its parameters are the other's own.

    `targets` are written in this order where they meet. `tokenizer` names the tokens that come as ids, and
    `encodings` are of the text that the next pass reads; None where it comes as ids alone.
    """

    def __init__(
        self,
        inner: Network,
        targets: Sequence[Target],
        tokenizer: Tokenizer | None = None,
        encodings: Mapping[StackKind, Encoding] | None = None,
    ) -> None:
        super().__init__()
        self.training = inner.training
        # The inner network is a module, so that its parameters are found.
        self.inner = inner
        self.config, self.prefixes, self.start_id = inner.config, inner.prefixes, inner.start_id
        # All that is written, also by networks within.
        self.written = frozenset(target.tap for target in targets) | inner.written
        self._targets, self._tokenizer, self._encodings = tuple(targets), tokenizer, encodings
        self._changes: list[Change] = []

    def __getattr__(self, name: str) -> Any:
        # What else the network has, such as `parity`, is its own.
        try:
            return super().__getattr__(name)
        except AttributeError:
            # Not set yet: to ask it would come here again, for ever.
            if name == "inner":
                raise
        # The user would run the model of transformers, without the edits.
        if name == "hf_model":
            raise AttributeError(
                "the model of transformers by itself, its `generate` too, runs without the edits: call the "
                "edited model, or take the other as edited.network.plain.hf_model."
            )
        return getattr(self.inner, name)

    @property
    def plain(self) -> Network:
        """The network without edits."""
        return self.inner.plain

    @property
    def changes(self) -> tuple[Change, ...]:
        """What the edits of a network `for_texts` did in its pass, in order."""
        return (*self.inner.changes, *self._changes)

    @property
    def edits(self) -> tuple[str, ...]:
        """See `Network.edits`."""
        return (*self.inner.edits, *(f"{target.edit!r} at {target.tap}" for target in self._targets))

    @property
    def bound(self) -> str | None:
        """See `Network.bound`."""
        own = (repr(target.edit) for target in self._targets if target.is_bound)
        return self.inner.bound or next(own, None)

    def written_heads(self, tap: str, count: int) -> tuple[int, ...]:
        """See `Network.written_heads`."""
        own = [target.edit.head for target in self._targets if target.tap == tap]
        # Heads of all edits at this tap, and of networks within.
        found = {number for head in own for number in numbers_of("head", head, count)}
        return tuple(sorted(found | set(self.inner.written_heads(tap, count))))

    def for_texts(self, encodings: Mapping[StackKind, Encoding]) -> Network:
        """The network for one pass over these texts, whose words are known."""
        return EditedNetwork(self.inner.for_texts(encodings), self._targets, self._tokenizer, encodings)

    def shares_a_pass(self, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        """No: edits may name words and positions."""
        return False

    @property
    def has_vocabulary_head(self) -> bool:
        """See `Network.has_vocabulary_head`."""
        return self.inner.has_vocabulary_head

    # What edits do not change is the inner network's.
    depth = _of_inner("depth")
    limit = _of_inner("limit")
    stack = _of_inner("stack")
    projection = _of_inner("projection")
    final_norm = _of_inner("final_norm")
    unembedding = _of_inner("unembedding")
    readout = _of_inner("readout")
    tap_names = _of_inner("tap_names")

    def forward(self, token_ids: Tensor, *, taps: Taps | None = None, **others: Any) -> Output:
        """See `Network.forward`; the caller's taps see what the edits left."""
        check_mode(self.inner)
        offered: set[str] = set()
        # Edits first, then the caller's taps, which see what edits left.
        writes = Taps(self._writes(token_ids, others, offered))
        output: Output = self.inner(token_ids, taps=writes.then(taps), **others)
        # An edit whose tap was never offered would be missing in silence.
        for target in self._targets:
            if target.tap not in offered:
                raise RegardError(
                    f"the tap {target.tap!r} was not offered in this forward pass, and so the edit "
                    f"{target.edit} was not made."
                )
        return output

    def _writes(self, token_ids: Tensor, others: Mapping[str, Any], offered: set[str]) -> dict[str, Any]:
        """What writes, at every tap; see `Listening.taps` for why it is not kept."""
        by_tap: dict[str, list[Target]] = {}
        for target in self._targets:
            by_tap.setdefault(target.tap, []).append(target)
        # Only where the text is known is this network of one pass.
        changes = None if self._encodings is None else self._changes
        texts: list[Texts] = []

        def listener(tap: str) -> Any:
            def listen(value: Tensor) -> Tensor:
                offered.add(tap)
                # Worked out at the first tap: by then the network has accepted what it was given.
                if not texts:
                    texts.append(self._texts(token_ids, others))
                return _written(value, by_tap[tap], texts[0], changes)

            return listen

        return {tap: listener(tap) for tap in by_tap}

    def _texts(self, token_ids: Tensor, others: Mapping[str, Any]) -> Texts:
        """What the pass reads; the network has accepted it by now."""
        read: dict[StackKind, Tensor] = {next(iter(self.prefixes)): token_ids}
        masks: dict[StackKind, Mask | Tensor | None] = {next(iter(self.prefixes)): others.get("mask")}
        if others.get("decoder_token_ids") is not None:
            read["decoder"] = others["decoder_token_ids"]
            masks["decoder"] = others.get("decoder_mask")
        encodings = self._encodings
        # Words of ids alone can be looked up with the tokenizer, if it is one text.
        if encodings is None and len(token_ids) == 1:
            encodings = {kind: self._named(ids[0].tolist()) for kind, ids in read.items()}
        return Texts(
            encodings=encodings or {},
            lengths={kind: ids.shape[1] for kind, ids in read.items()},
            masks={kind: as_mask("mask", masks[kind], read[kind]) for kind in read},
        )

    def _named(self, ids: list[int]) -> Encoding:
        """Tokens by their pieces, as the vocabulary has them; by their words where the edits name others."""
        plain = Encoding.from_ids(ids, self._tokenizer)
        asked = [each for target in self._targets for each in (target.edit.query, target.edit.key)]
        listed = [name for each in asked for name in (each if isinstance(each, list) else [each])]
        words = {name for name in listed if isinstance(name, str | tuple)}
        pieces = {name for token in plain.tokens for name in (token.text, token.shown)}
        if self._tokenizer is None or words <= pieces:
            return plain
        return read_back(ids, self._tokenizer)


def _written(value: Tensor, targets: Sequence[Target], texts: Texts, changes: list[Change] | None) -> Tensor:
    """A tensor with what some edits make of it, one after the other."""
    rows: dict[int, Tensor] = {}
    # Edits of one row of a batch are put together at the end.
    for target in targets:
        row = target.row
        whole = value if row is None else rows.get(row, value[row : row + 1])
        part = Part(target, whole, texts)
        new = target.edit.change(part).expand_as(part.x)
        if changes is not None:
            changes.append(_change(target, part.x, new))
        whole = part.with_changed(new)
        if row is None:
            value = whole
        else:
            rows[row] = whole
    if not rows:
        return value
    return torch.cat([rows.get(row, value[row : row + 1]) for row in range(len(value))])


def _change(target: Target, old: Tensor, new: Tensor) -> Change:
    """What an edit did, left on the device: to fetch it would make the pass wait."""
    with torch.no_grad():
        # Equal infinities differ by NaN, and count as the same.
        same = new == old
        apart = torch.where(same, 0.0, (new - old).abs()).amax()
        # The share of numbers that changed, and the largest change.
        found = torch.stack([1.0 - same.double().mean(), apart.double()])
    return Change(edit=repr(target.edit), tap=target.tap, found=found)


# Together in one pass, where nobody says how many: more are no faster, and hold more.
_TOKENS, _LOGITS = 1 << 11, 1 << 26


def outputs_of(
    network: Network,
    trace: Trace,
    variants: Sequence[Edit | None],
    *,
    batch: int | None = None,
    logits: bool = True,
) -> Iterator[Output]:
    """What a network gives on a trace's text with each edit by itself, in order, without gradients.

    The variant None is no edit. By default, as many run in one pass (`batch`) as have 2,048 tokens, and 2^26
    logits, together.
    """
    rows = _fitting(network, trace, logits) if batch is None else whole("batch", batch, least=1)
    known = [edit for edit in variants if edit is not None]
    # By identity: two equal edits are two variants.
    targets: dict[Edit, list[Target]] = {edit: [] for edit in known}
    for target in targets_of(network, known):
        targets[target.edit].append(target)
    for first in range(0, len(variants), rows):
        together = variants[first : first + rows]
        # Each variant writes its own row of the batch.
        writes = [
            replace(target, row=row)
            for row, edit in enumerate(together)
            if edit is not None
            for target in targets[edit]
        ]
        edited = EditedNetwork(network, writes)
        with torch.no_grad():
            output = rerun(trace, edited, batch=len(together), logits=logits)
        for row in range(len(together)):
            yield _row(output, row)


def _fitting(network: Network, trace: Trace, logits: bool) -> int:
    tokens = sum(len(trace.stack(stack).encoding.tokens) for stack in network.prefixes)
    has_logits = logits and "logits" in network.tap_names()
    # Logits are the largest tensor of a pass.
    most = min(_TOKENS, _LOGITS // network.config.vocab_size) if has_logits else _TOKENS
    return max(1, most // tokens)


def _row(output: Output, row: int) -> Output:
    """One text's part of what a batch gave."""
    given = {each.name: getattr(output, each.name) for each in fields(output)}
    rows = {name: value[row : row + 1] for name, value in given.items() if isinstance(value, Tensor)}
    return replace(output, **rows)
