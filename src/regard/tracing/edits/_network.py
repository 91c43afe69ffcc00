"""A network whose forward passes write: the same network, parameters and all, with edits at its taps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.core import Mask, Taps
from regard.core.errors import InputError, RegardError
from regard.models import Kind, Network, Output, StackKind, as_mask, check_ids
from regard.text import Encoding, Tokenizer
from regard.tracing.edits._capture import Captured, captured, check_mode, keep_in, side, stack_along
from regard.tracing.edits._edit import Edit, Write
from regard.tracing.edits._places import Place, layers_of, numbers_of, positions_of
from regard.tracing.edits._sites import kind_of, points_of
from regard.tracing.run import run_quietly


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """One tensor that an edit writes: what is known before there is a text.

    Args:
        edit: which one.
        kind, layer, point: where.
        heads: which of the tensor's heads; None for all, or where it has none.
        sample: the tensor of a text of one token.
        sources: see `Edit.writer`.
    """

    edit: Edit
    kind: Kind
    layer: int | None
    point: str
    heads: tuple[int, ...] | None
    sample: Tensor
    sources: tuple[Captured, ...]


class EditPlan:
    """Edits of one network: where they write, worked out once, and whether they ever did.

    Args:
        network: which.
        edits: in the order in which they write where they meet.
        tokenizer: names the tokens that come as ids; None where there is none.

    Attributes:
        ran: whether a forward pass with them has been through.

    Raises:
        InputError: no edits; a site, kind, layer or head that the network does not have; or a network in
            training mode.
    """

    def __init__(self, network: Network, edits: Sequence[Edit], tokenizer: Tokenizer | None = None) -> None:
        _check(network, edits)
        self.edits, self.tokenizer = tuple(edits), tokenizer
        self.targets = _targets(network, self.edits)
        self.ran = False

    def encodings(self, read: Mapping[StackKind, Tensor]) -> Mapping[StackKind, Encoding]:
        """The tokens of what is read, where only ids are known.

        Raises:
            InputError: an edit at a word, in a batch of several texts.
        """
        words = [
            name
            for edit in self.edits
            for name in ("query", "key")
            if isinstance(getattr(edit, name), str) and any(len(ids) > 1 for ids in read.values())
        ]
        if words:
            raise InputError(
                f"{words[0]} must be positions in a batch of texts, where no word has one place; trace the "
                "texts one by one."
            )
        return {kind: Encoding.from_ids(ids[0].tolist(), self.tokenizer) for kind, ids in read.items()}


class EditedNetwork(Network):
    """A network around another, whose taps it writes; its parameters are the other's own.

    Args:
        inner: the network, which stays as it is.
        plan: the edits.
        encodings: of the texts that the next pass reads; None where they come as ids alone.
    """

    def __init__(
        self, inner: Network, plan: EditPlan, encodings: Mapping[StackKind, Encoding] | None = None
    ) -> None:
        super().__init__()
        self.training = inner.training
        self.inner = inner
        self.config, self.prefixes, self.start_id = inner.config, inner.prefixes, inner.start_id
        self.written = frozenset(target.point for target in plan.targets) | inner.written
        self._plan, self._encodings = plan, encodings

    def __getattr__(self, name: str) -> Any:
        # What else the network has, such as `stack`, is its own.
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "inner":
                raise
            return getattr(self.inner, name)

    @property
    def plain(self) -> Network:
        """The network without edits."""
        return self.inner.plain

    def for_texts(self, encodings: Mapping[StackKind, Encoding]) -> Network:
        """The network for one pass over these texts, whose words are known."""
        return EditedNetwork(self.inner.for_texts(encodings), self._plan, encodings)

    def depth(self, kind: StackKind) -> int:
        """Attention layers of a stack."""
        return self.inner.depth(kind)

    def limit(self, kind: StackKind) -> int | None:
        """The most positions that a stack can take; None for no limit."""
        return self.inner.limit(kind)

    def tap_names(self) -> list[str]:
        """Every point, in the order of the forward pass."""
        return self.inner.tap_names()

    def forward(
        self,
        token_ids: Tensor,
        *,
        mask: Tensor | Mask | None = None,
        token_types: Tensor | None = None,
        positions: Tensor | None = None,
        decoder_token_ids: Tensor | None = None,
        decoder_mask: Tensor | Mask | None = None,
        logits: bool = True,
        taps: Taps | None = None,
    ) -> Output:
        """See `Network.forward`; the caller's taps see what the edits left.

        Raises:
            InputError: a position, word or value that does not fit, before the network runs; afterwards, an
                edit that wrote nothing but what was there.
            RegardError: a tap that was not offered.
        """
        check_mode(self.inner)
        check_ids("token_ids", token_ids, self.config.vocab_size, None)
        decoder_token_ids = self._target(token_ids, decoder_token_ids)
        first = next(iter(self.prefixes))
        read: dict[StackKind, Tensor] = {first: token_ids}
        masks = {first: as_mask("mask", mask, token_ids)}
        if decoder_token_ids is not None:
            read["decoder"] = decoder_token_ids
            masks["decoder"] = as_mask("decoder_mask", decoder_mask, decoder_token_ids)
        run = _Run(self._plan.targets, read, masks, self._encodings or self._plan.encodings(read))
        output: Output = self.inner(
            token_ids,
            mask=mask,
            token_types=token_types,
            positions=positions,
            decoder_token_ids=decoder_token_ids,
            decoder_mask=decoder_mask,
            logits=logits,
            taps=run.taps().then(taps),
        )
        run.check()
        self._plan.ran = True
        return output

    def _target(self, token_ids: Tensor, given: Tensor | None) -> Tensor | None:
        if len(self.prefixes) == 1:
            return given  # which the network refuses unless it is None
        if given is None:
            head = getattr(self.inner, "head", None)
            given = None if head is None else head.target_of(token_ids)
        if given is None:
            raise InputError(
                "decoder_token_ids must be given: this model has an encoder and a decoder, which reads them."
            )
        check_ids(
            "decoder_token_ids",
            given,
            getattr(self.config, "decoder_vocab_size", self.config.vocab_size),
            None,
        )
        return given


class _Run:
    """One forward pass: what writes, whether it was called, and whether anything changed."""

    def __init__(
        self,
        targets: Sequence[Target],
        read: Mapping[StackKind, Tensor],
        masks: Mapping[StackKind, Mask | None],
        encodings: Mapping[StackKind, Encoding],
    ) -> None:
        self._writes: dict[str, list[tuple[Edit, Place, Write]]] = {}
        self._changed: dict[Edit, list[Tensor]] = {}
        self._fired: set[tuple[Edit, str]] = set()
        for target in targets:
            place = _place(target, read, masks, encodings)
            write = target.edit.writer(place, target.sources)
            self._writes.setdefault(target.point, []).append((target.edit, place, write))

    def taps(self) -> Taps:
        """What writes, at every point; see `Listening.taps` for why it is not kept."""
        return Taps({point: self._listener(point) for point in self._writes})

    def check(self) -> None:
        """See `EditedNetwork.forward`."""
        for point, writes in self._writes.items():
            for edit, _, _ in writes:
                if (edit, point) not in self._fired:
                    raise RegardError(
                        f"the tap {point!r} was not offered in this forward pass, and so the edit "
                        f"{_shown(edit)} was not made."
                    )
        for edit, changes in self._changed.items():
            if not any(bool(each) for each in changes):
                raise InputError(
                    f"the edit {_shown(edit)} changed nothing: all that it wrote equals what was there."
                )

    def _listener(self, point: str) -> Any:
        def listen(value: Tensor) -> Tensor:
            for edit, place, write in self._writes[point]:
                part = place.part(value)
                written = write(value, part)
                with torch.no_grad():
                    changed = (written != part).any()
                    place.site.check_finite(f"what {_shown(edit)} makes of {place}", written)
                self._changed.setdefault(edit, []).append(changed)
                self._fired.add((edit, point))
                value = place.put(value, written)
            return value

        return listen


def _check(inner: Network, edits: Sequence[Edit]) -> None:
    if not edits:
        raise InputError("edits must be at least one, such as regard.Zero('weights', layer=3, head=5).")
    for edit in edits:
        if not isinstance(edit, Edit):
            raise InputError(
                f"edits must be regard.Zero, Scale, Add, Replace, Mean, Resample; got {type(edit).__name__}."
            )
    if len(set(edits)) < len(edits):
        raise InputError("edits must be different objects; one was given twice.")
    check_mode(inner)


def _targets(inner: Network, edits: Sequence[Edit]) -> tuple[Target, ...]:
    found: list[tuple[Edit, Kind, int | None, str]] = []
    for edit in edits:
        kind = kind_of(edit.where, edit.kind, inner)
        points = points_of(edit.where, kind, inner)
        for layer in layers_of(edit.where, edit.layer, points):
            found.append((edit, kind, layer, points[layer]))
    samples = sampled(inner, [point for _, _, _, point in found])
    sources = {}
    for edit in edits:
        own = [point for each, _, _, point in found if each is edit]
        sources[edit] = tuple(captured(trace, own) for trace in edit.traces())
    targets = []
    for edit, kind, layer, point in found:
        heads = None
        if edit.head is not None:
            heads = numbers_of("head", edit.head, samples[point].shape[0])
        targets.append(
            Target(
                edit=edit,
                kind=kind,
                layer=layer,
                point=point,
                heads=heads,
                sample=samples[point],
                sources=sources[edit],
            )
        )
    return tuple(targets)


def sampled(network: Network, points: Sequence[str]) -> dict[str, Tensor]:
    """What a text of one token gives at these taps, without the batch: sizes, dtypes, devices."""
    kept: dict[str, Tensor] = {}
    taps = Taps({point: keep_in(kept, point) for point in points})
    # Without the edits below: they are for texts, not for this token.
    run_quietly(network.plain, [0], [0] if len(network.prefixes) == 2 else None, taps=taps)
    return {point: value[0] for point, value in kept.items()}


def _place(
    target: Target,
    read: Mapping[StackKind, Tensor],
    masks: Mapping[StackKind, Mask | None],
    encodings: Mapping[StackKind, Encoding],
) -> Place:
    site, sample = target.edit.where, target.sample
    batch = len(next(iter(read.values())))
    chosen: dict[Any, tuple[int, ...] | None] = {}
    shape = [batch]
    for dim, axis in enumerate(site.axes):
        if axis == "head":
            numbers, count = target.heads, sample.shape[dim]
        else:
            encoding = side(encodings, target.kind, axis)
            numbers, count = positions_of(axis, getattr(target.edit, axis), encoding), len(encoding.tokens)
            # Of one token there is one column, and with a sink two; a sink is no key.
            if numbers is None and axis == "key" and site.is_matrix and sample.shape[dim] > 1:
                numbers = tuple(range(count))
        chosen[axis] = numbers
        shape.append(count if numbers is None else len(numbers))
    shape += sample.shape[len(site.axes) :]
    return Place(
        site=site,
        kind=target.kind,
        layer=target.layer,
        point=target.point,
        chosen=chosen,
        shape=tuple(shape),
        dtype=sample.dtype,
        device=sample.device,
        mask=masks[stack_along(target.kind, site.axes[-1])],
    )


def _shown(edit: Edit) -> str:
    names = ("layer", "head", "query", "key", "kind")
    given = [f"{name}={getattr(edit, name)!r}" for name in names if getattr(edit, name) is not None]
    return f"{type(edit).__name__}({', '.join([repr(edit.site), *given])})"
