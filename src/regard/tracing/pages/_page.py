"""From a trace to the record that the page draws: plain numbers, checked against the trace's own weights."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.core import (
    Additive,
    AttentionInputs,
    Bias,
    Bilinear,
    Causal,
    Cosine,
    Dot,
    Mask,
    Padding,
    ScaledDot,
    Scorer,
    Segments,
    Window,
    attention_weights,
)
from regard.core.errors import InputError
from regard.models import Kind, StackKind, stack_of
from regard.text import Token, is_part
from regard.tracing.comparison import words_alike
from regard.tracing.edits import Zero, unseen_word
from regard.tracing.measures import Scalar
from regard.tracing.pages._instead import instead_of, left_by
from regard.tracing.pages._names import names_of
from regard.tracing.pages._page_measures import (
    as_array,
    head_statistics,
    measures_of,
    positions_record,
    rotary_record,
    values_of,
)
from regard.tracing.pages._story import MOST_TOKENS, story_record
from regard.tracing.reasons import pairs_of_head
from regard.tracing.record import Trace
from regard.views import (
    AttentionRecord,
    LayerRecord,
    MaskRecord,
    PageToken,
    ScorerName,
    ScorerRecord,
    Side,
    StoryRecord,
    every_head,
    find_start,
    weight_rows,
)

_Floats = npt.NDArray[np.float32]
_Bools = npt.NDArray[np.bool_]

# What matrices of masks and biases may take in a page, in bytes: a browser opens a file of this size at once.
_MOST_DENSE = 24_000_000

# Entries of a bias that are looked at to learn whether it depends on the distance alone, at most.
_MOST_ENTRIES = 2**28

# Weights of the record and of the trace are both worked out in float64, from the same float32 numbers.
_CHECKED = 1e-5

_WAY_OUT = "`regard explain` and trace.weights give its numbers"


def page_record(
    trace: Trace,
    measures: Sequence[str] | None = (),
    of: Scalar | None = None,
    *,
    statistics: bool = True,
    story: bool = False,
    names: int = 0,
    all_positions: bool = False,
    check: bool = True,
) -> AttentionRecord:
    """What the page needs of a trace: tokens, and q, k, scale, mask and bias of every layer of every kind.

    Args:
        trace: the trace.
        measures: what can be drawn in the place of the weights too: "value_zeroing", "rollout", "gradient";
            "norm" is there in any case, where it can be had. None is for a notebook, which works out all of
            them when they are looked at.
        of: what "gradient" is of, as in `Trace.attention_gradients`.
        statistics: whether it has the statistics of every head; a notebook asks for them when it shows them.
        story: whether it has the way of each token through the layers, where that can be seen.
        names: how many weights may be read to name the heads by what they do; 0 for no names.
        all_positions: whether it has what the model adds at all its positions, not only at the text's.
        check: whether, with the story, it has what more runs of the model say: what becomes of the tokens
            without the head that the page opens on, or without its word; what wrote the words that this head
            looks at, and other words in the place of one; words beside themselves in another sentence. A page
            that can ask its model needs none, and a notebook (`measures` is None) not the first two.

    Raises:
        InputError: a layer has something that the page cannot draw exactly: it would show other weights than
            the model's. The message names it. Or a measure that there is not.
    """
    matrices = _Made()
    # None: a widget asks for measures later.
    drawn, left = ({}, {}) if measures is None else measures_of(trace, measures, of)
    # Numbers alone from here on: the views know no tensor.
    record = AttentionRecord(
        model=trace.model,
        encoder=None if trace.encoder is None else _side(trace, "encoder", all_positions),
        decoder=None if trace.decoder is None else _side(trace, "decoder", all_positions),
        layers={kind: tuple(_layers(trace, kind, matrices)) for kind in trace.kinds},
        statistics={kind: head_statistics(trace, kind) for kind in trace.kinds} if statistics else {},
        measures=drawn,
        left_out=left,
        names=names_of(trace, names) if names else None,
    )
    # A difference or a movement opens on something else.
    if not story:
        return record
    # The head and the word that the page opens on.
    start = find_start(record, every_head(record))
    record = replace(record, start=start, story=_stories(trace, start, check))
    return replace(record, **_without(trace, start, measures is not None)) if check else record


_Start = Mapping[str, Any] | None


def _without(trace: Trace, start: _Start, with_edits: bool) -> dict[str, Any]:
    """What is left without the head that the page opens on, and when no other word may look at the word that
    it opens on; what this head gives to others in the place of that word; only where that costs little.

    Without `with_edits` the former two are left out: a notebook asks its model for them.
    """
    # What needs the model, one stack and a short text.
    if start is None or trace.loaded is None or len(trace.kinds) > 1 or len(trace.tokens) > MOST_TOKENS:
        return {}
    kind, layer, head, query, key = (start[name] for name in ("kind", "layer", "head", "pin", "key"))
    here = {"kind": kind, "layer": layer, "head": head}
    apart, without, why, instead = words_apart(trace), list[dict[str, Any]](), None, None
    if with_edits:
        # The text once more without this head.
        without.append(here | left_by(trace, Zero("head", layer=layer, head=head, kind=kind)))
        with suppress(InputError):  # of a model whose scores cannot be written
            without.append({"kind": kind, "unseen": key} | left_by(trace, unseen_word(trace, key)))
    with suppress(InputError):  # of a model whose scores are no sums
        why = here | pairs_of_head(trace, layer, head, kind)
    with suppress(InputError):  # of a pair, of a lens, or of a word that looks most at itself
        instead = here | {"from": query, "to": key, "words": instead_of(trace, layer, head, query, key)}
    return {"without": without, "apart": apart, "why": why, "instead": instead}


def words_apart(trace: Trace) -> float | None:
    """How far two different words end apart, 1 - cosine; None where there are no two, or no end is kept."""
    if len(trace.kinds) > 1 or not (trace.stack(None).keeping.hidden and trace.stack(None).hidden):
        return None
    # The measure against which all changes are seen.
    alike = words_alike([trace])
    return None if math.isnan(alike) else round(1 - alike, 4)


def _stories(trace: Trace, start: _Start, with_words: bool) -> dict[StackKind, StoryRecord]:
    """The story of each stack that has one; of a long text, around the word that the page opens on."""
    stacks: list[StackKind] = [kind for kind in ("encoder", "decoder") if getattr(trace, kind) is not None]
    stories: dict[StackKind, StoryRecord] = {}
    for kind in stacks:
        # The word that the page opens on is in the middle.
        around = start["pin"] if start and stack_of(start["kind"]) == kind else 0
        story = story_record(trace, kind, around, with_words=with_words)
        stories |= {} if story is None else {kind: story}
    return stories


def _side(trace: Trace, kind: StackKind, all_positions: bool) -> Side:
    encoding = trace.stack(kind).encoding
    texts = encoding.texts
    tokenizer = None if trace.loaded is None else trace.loaded.tokenizer
    unknown = None if tokenizer is None else tokenizer.special_ids.unk
    return Side(
        text=texts[0] if texts else None,
        pair=texts[1] if len(texts) > 1 else None,
        tokens=tuple(
            PageToken(
                text=token.text,
                special=token.special,
                sequence=token.sequence,
                word=token.word,
                surface=token.surface,
                # A part of a character is shown by its bytes.
                bytes=token.label if is_part(token.shown) else None,
                unknown=_is_unknown(token, unknown),
            )
            for token in encoding.tokens
        ),
        words=tuple(word.text for word in encoding.words),
        positions=positions_record(trace, kind, every=all_positions),
    )


# Where the tokenizer's files name none, or there is no tokenizer.
_UNKNOWN = ("[UNK]", "<unk>")


def _is_unknown(token: Token, unknown: int | None) -> bool:
    """Whether the model read a token as one that stands for whatever its vocabulary lacks."""
    # By the id, where the tokenizer names it.
    if unknown is not None:
        return not token.special and token.id == unknown
    return not token.special and token.text in _UNKNOWN and token.surface != token.text


def _layers(trace: Trace, kind: Kind, made: "_Made") -> list[LayerRecord]:
    attention = trace.attention(kind)
    traced = trace.sides(kind)[0]
    crossed = traced.cross_layers if kind == "cross" else None
    # Cross-attention may be in some layers only.
    numbers: Sequence[int] = range(len(attention)) if crossed is None else crossed
    layers = []
    for number, own in zip(numbers, attention, strict=True):
        name = f"layer {number}" if len(trace.kinds) == 1 else f"layer {number} ({kind})"
        # No softmax of scores: the page holds the weights themselves.
        if own.inputs.weights is not None or own.inputs.kernel is not None:
            layers.append(made.written_out(name, number, own.inputs))
            continue
        layer = _layer(name, number, own.inputs, made)
        layers.append(replace(layer, v=values_of(own, layer), rotary=rotary_record(trace, kind, number)))
    return layers


def _layer(name: str, number: int, inputs: AttentionInputs, made: "_Made") -> LayerRecord:
    # A page draws one set of weights; dropout has another in each pass.
    if inputs.dropout is not None:
        raise _refused(name, "dropout")
    with torch.no_grad():  # a bias may be learned
        bias, finite = (None, None) if inputs.bias is None else made.bias(name, inputs)
        mask = None if inputs.mask is None else made.mask(name, inputs)
        if finite is not None:
            mask = _with_bits(mask or MaskRecord(), finite)
        # Cosines, for one, are products of vectors of length 1.
        shown = inputs.as_dot_product() or inputs
        layer = LayerRecord(
            layer=number,
            q=as_array(shown.q[0]),
            k=_silenced(as_array(shown.k[0]), mask),
            scale=inputs.factor,
            scorer=_scorer(name, inputs.scorer),
            softcap=inputs.softcap,
            mask=mask,
            bias=bias,
            sinks=None if inputs.sinks is None else as_array(inputs.sinks),
        )
        # Nothing is drawn that was not compared.
        _check(name, layer, inputs)
    return layer


_SCORERS: dict[type[Scorer], ScorerName] = {Bilinear: "bilinear", Cosine: "cosine", Additive: "additive"}


def _scorer(name: str, scorer: Scorer) -> ScorerRecord | None:
    """What the page has to know of a scorer, whose formula it shows."""
    if type(scorer) in (ScaledDot, Dot):
        return None
    if type(scorer) not in _SCORERS:
        raise _refused(name, f"a scorer that it has no formula of ({type(scorer).__name__})")
    v = as_array(scorer.v) if isinstance(scorer, Additive) else None
    return ScorerRecord(name=_SCORERS[type(scorer)], v=v)


class _Made:
    """Masks and biases that are made already, by the object: layers share them; and the room they take."""

    def __init__(self) -> None:
        self._masks: dict[int, tuple[object, MaskRecord | None]] = {}
        self._biases: dict[int, tuple[object, tuple[_Floats, _Bools | None]]] = {}
        self._dense = 0

    def written_out(self, name: str, number: int, inputs: AttentionInputs) -> LayerRecord:
        """A layer whose weights are no softmax of q k^T: all its weights as used, but for a sink's."""
        whose = "that an edit wrote" if inputs.kernel is None else f"of {inputs.kernel.name}"
        self._take_room(name, f"weights {whose}", 2 * inputs.num_heads * inputs.q_len * inputs.k_len)
        with torch.no_grad():
            weights = as_array(attention_weights(inputs)[0, :, :, : inputs.k_len])
        try:
            return LayerRecord.of_weights(number, weights)
        except InputError as error:  # below 0, or rows that sum to more than 1
            raise _refused(name, f"weights {whose} ({error})") from error

    def mask(self, name: str, inputs: AttentionInputs) -> MaskRecord | None:
        """The mask of a layer; None where it hides nothing."""
        mask = inputs.mask
        assert mask is not None
        # The object is kept beside what was made of it: another one may not get its id.
        if id(mask) not in self._masks:
            self._masks[id(mask)] = (mask, self._mask(name, mask, inputs))
        return self._masks[id(mask)][1]

    def _mask(self, name: str, mask: Mask, inputs: AttentionInputs) -> MaskRecord | None:
        simple = mask.simplified(inputs.q_len, inputs.k_len)
        if simple is None:
            return None
        record = MaskRecord()
        # Each part in its shortest form; what has none becomes bits.
        for part in simple.parts():
            if isinstance(part, Causal):
                # Causal: key - query <= offset.
                record = _narrowed(record, None, part.offset)
            elif isinstance(part, Window):
                low = None if part.left is None else part.offset - part.left
                high = None if part.right is None else part.offset + part.right
                record = _narrowed(record, low, high)
            elif isinstance(part, Padding):
                real = part.real[0].cpu().numpy()
                record = replace(record, keys=real if record.keys is None else record.keys & real)
            elif isinstance(part, Segments) and record.segments is None:
                of_keys = part.queries if part.keys is None else part.keys
                segments = (part.queries[0].cpu().long().numpy(), of_keys[0].cpu().long().numpy())
                record = replace(record, segments=segments)
            else:
                record = _with_bits(record, self._bits(name, part, inputs))
        return record

    def _bits(self, name: str, part: Mask, inputs: AttentionInputs) -> _Bools:
        # (1 or heads, queries, keys)
        allowed = part.dense(inputs.q_len, inputs.k_len, device=inputs.q.device)[0]
        allowed = allowed.expand(allowed.shape[0], inputs.q_len, inputs.k_len)
        self._take_room(name, f"a mask that only a matrix says ({type(part).__name__})", allowed.numel() // 8)
        bits: _Bools = allowed.cpu().numpy()
        return bits

    def bias(self, name: str, inputs: AttentionInputs) -> tuple[_Floats, _Bools | None]:
        """The bias of a layer, and where it is finite (-inf says what a mask says), None if everywhere."""
        bias = inputs.bias
        assert bias is not None
        assert not isinstance(bias, Tensor), "the record has made an object of it"
        if id(bias) not in self._biases:
            self._biases[id(bias)] = (bias, self._bias(name, bias, inputs))
        return self._biases[id(bias)][1]

    def _bias(self, name: str, bias: Bias, inputs: AttentionInputs) -> tuple[_Floats, _Bools | None]:
        # Most biases are a line: short, and exact.
        line = _by_distance(bias, inputs)
        if line is not None:
            return line, None
        rows, keys = _all(inputs)
        heads = bias.block(rows[:1], keys[:1]).shape[1]
        size = heads * inputs.q_len * inputs.k_len
        said = f"a bias that depends on more than the distance ({type(bias).__name__})"
        self._take_room(name, said, 2 * size)  # 16 bits each
        values = bias.block(rows, keys)[0].float()
        values = values.expand(values.shape[0], inputs.q_len, inputs.k_len)
        finite = values != float("-inf")
        dense = as_array(torch.where(finite, values, 0.0))
        return dense, None if bool(finite.all()) else finite.cpu().numpy()

    def _take_room(self, name: str, said: str, size: int) -> None:
        # Over all layers: each matrix is stored once.
        self._dense += size
        if self._dense > _MOST_DENSE:
            raise InputError(
                f"the page cannot hold {name}: it has {said}, and with it such matrices take more than "
                f"{_MOST_DENSE // 10**6} MB of the page. Give a shorter text; {_WAY_OUT}."
            )


def _by_distance(bias: Bias, inputs: AttentionInputs) -> _Floats | None:
    """A bias as a line, (heads or 1, queries + keys - 1), where it depends on the distance alone; or None."""
    rows, keys = _all(inputs)
    # The last query's row, then the last key's column upwards: every distance once, from the furthest back.
    row = bias.block(rows[-1:], keys)[0]
    column = bias.block(rows, keys[-1:])[0]
    heads = max(row.shape[0], column.shape[0])
    row = row.expand(heads, 1, len(keys))[:, 0]
    column = column.expand(heads, len(rows), 1)[:, :-1, 0].flip(1)
    line = torch.cat((row, column), dim=1)
    if not bool(line.isfinite().all()):
        return None
    windows = line.unfold(1, len(keys), 1).flip(1)  # row i is the line from queries - 1 - i on
    # Some rows of a long text, evenly spaced.
    every = -(-heads * len(rows) * len(keys) // _MOST_ENTRIES)
    picked = rows[::every]
    size = max(1, 2**22 // (heads * len(keys)))
    # One of the first rows first: most biases that are no line show it there.
    for block in (picked[:1], *torch.split(picked, size)):
        biases = bias.block(block, keys)[0]
        if not torch.equal(biases.expand(heads, len(block), len(keys)), windows[:, block]):
            return None
    return as_array(line)


def _all(inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
    device = inputs.q.device
    return torch.arange(inputs.q_len, device=device), torch.arange(inputs.k_len, device=device)


def _narrowed(record: MaskRecord, low: int | None, high: int | None) -> MaskRecord:
    # Two windows leave what both allow.
    lows = [each for each in (record.low, low) if each is not None]
    highs = [each for each in (record.high, high) if each is not None]
    return replace(record, low=max(lows, default=None), high=min(highs, default=None))


def _with_bits(record: MaskRecord, bits: _Bools) -> MaskRecord:
    return replace(record, bits=bits if record.bits is None else record.bits & bits)


def _silenced(k: _Floats, mask: MaskRecord | None) -> _Floats:
    """The keys without what stands at padding: it reaches no weight, and may be anything."""
    return k if mask is None or mask.keys is None else np.where(mask.keys[:, None], k, np.float32(0))


def _check(name: str, layer: LayerRecord, inputs: AttentionInputs) -> None:
    """The last word: some rows of every head, from the record and from the trace."""
    # The first row, one in the middle, the last.
    rows = sorted({0, inputs.q_len // 2, inputs.q_len - 1})
    wanted = attention_weights(inputs, torch.tensor(rows, device=inputs.q.device))[0].double().cpu().numpy()
    for head in range(layer.heads):
        actual = weight_rows(layer, head, np.array(rows))
        difference = float(np.abs(actual - wanted[head]).max()) if actual.shape == wanted[head].shape else 1.0
        if not difference <= _CHECKED:
            raise _refused(name, f"weights of head {head} that its q, k, mask and bias do not give")


def _refused(name: str, said: str) -> InputError:
    return InputError(f"the page cannot draw {name} exactly: it has {said}; {_WAY_OUT}.")
