"""A worked calculation of one token's attention: the record, which shows itself as a walk-through."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.displayable import Displayable
from regard.core.wording import excerpt, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

# What is listed before the rest is summed up in one line: a screen's worth.
_MAX_KEYS = 32
_MAX_VALUES = 8
_MAX_TOKENS = 64
_MAX_TEXT = 240


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One vector on the way through a layer.

    Args:
        name: what it is: "LayerNorm", "x + attention", "feed-forward".
        vector: 1-D.
    """

    name: str
    vector: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation(Displayable):
    """Every number between a text and one token's output of one head; vectors are 1-D numpy arrays.

    Args:
        model, text: what was traced.
        kind: whose attention: "encoder", "decoder" (its own), or "cross" (from the decoder to the encoder).
        layer, head: which attention, counted from 0, of num_layers x num_heads.
        token: the query's place among the tokens; `pieces` are those of its word.
        tokens, token_pieces, token_ids: all tokens, as people read them and as the vocabulary writes them.
        key_tokens, key_pieces: the tokens that are attended to: those of the encoder for "cross", else all.
        learned: (d_model,), the token's row in the table of learned embeddings.
        scaled: the same times the model's factor (sqrt(d_model)); None where it has none.
        position, token_type: (d_model,), what is added to it; None where the model adds none.
        embedded: (d_model,), what enters layer 0: the sum of these, normed where the model does so.
        embedding_norm: the class of that norm, such as "LayerNorm"; None where none is known.
        x: (d_model,), what the layer reads.
        made_from: what the query is made of, in words, where `before` is empty.
        before: the steps from x to what the query is made of: a norm, a decoder's own attention. Empty where
            the query is made of x itself.
        q: (head_dim,), its query.
        k, v: (keys, head_dim or v_dim), every key token's key and value.
        scores: (keys,), q . k, or what another scorer gives; `formula` says it in symbols.
        left, right: (head_dim,) and (keys, head_dim), whose products, added up, are the scores: q and k; of
            another scorer what it makes of them, such as v and tanh(q + k).
        scaled_scores: (keys,), scale * scores; where the model does so capped and biased.
        masked_scores: (keys,), -inf where the mask forbids; the softmax's argument.
        weights: (keys,), their softmax.
        sink: the weight of the head's sink, one more column of the softmax that has no key and no value (in
            gpt-oss); with it, not without, the row sums to 1. None where the model has no sinks.
        scale: the factor, 1 / sqrt(head_dim) in most models.
        context: (v_dim,), the sum of weights * v.
        joined: (heads * v_dim,), all heads' contexts in a row.
        output: (d_model,), the output projection of it, which is added to x; None where it cannot be
            seen.
        after: the steps from the output to the layer's own output: residual additions, norms, the hidden
            vector and the output of the feed-forward network. The last is `contextual`. Empty where they
            cannot be seen: a trace without its model, the lens, edits, layers with a convolution.
        contextual: (d_model,), the layer's output; of the last layer, after the model's final norm.
    """

    model: str
    text: str
    kind: str
    layer: int
    head: int
    num_layers: int
    num_heads: int
    token: int
    pieces: tuple[int, ...]
    tokens: tuple[str, ...]
    token_pieces: tuple[str, ...]
    token_ids: tuple[int, ...]
    key_tokens: tuple[str, ...]
    key_pieces: tuple[str, ...]
    learned: np.ndarray
    scaled: np.ndarray | None
    position: np.ndarray | None
    token_type: np.ndarray | None
    embedded: np.ndarray
    embedding_norm: str | None
    x: np.ndarray
    made_from: str
    before: tuple[Step, ...]
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    formula: str
    left: np.ndarray
    right: np.ndarray
    scores: np.ndarray
    scaled_scores: np.ndarray
    masked_scores: np.ndarray
    weights: np.ndarray
    scale: float
    context: np.ndarray
    joined: np.ndarray
    output: np.ndarray | None
    after: tuple[Step, ...]
    contextual: np.ndarray
    sink: float | None = None

    def __repr__(self) -> str:
        token = f"token {self.token} {self.tokens[self.token]!r}"
        return f"Explanation({token}, layer {self.layer}, head {self.head})"

    def to_json(self) -> dict[str, Any]:
        """Every field under its name, arrays as nested lists; a score of -inf becomes None."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def to_rows(self) -> list[dict[str, Any]]:
        """A row a key: its token and piece, its score in each form, whether the mask shows it, its weight."""
        return [
            {
                "key": key,
                "token": token,
                "piece": self.key_pieces[key],
                "score": float(self.scores[key]),
                "scaled": float(self.scaled_scores[key]),
                "seen": bool(np.isfinite(self.masked_scores[key])),
                "weight": float(self.weights[key]),
            }
            for key, token in enumerate(self.key_tokens)
        ]

    def _parts(self) -> Iterator["RenderableType"]:
        from rich.text import Text

        yield from _heading(self)
        for number, (title, parts) in enumerate(_steps(self), start=1):
            yield Text(f"\n{number}. {title}", style="bold")
            yield from parts


def _plain(value: object) -> Any:
    if isinstance(value, np.ndarray):
        numbers = value.astype(object)
        # JSON has neither infinity nor NaN.
        numbers[~np.isfinite(value)] = None
        return numbers.tolist()
    if isinstance(value, Step):
        return {"name": value.name, "vector": _plain(value.vector)}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _heading(e: Explanation) -> Iterator["RenderableType"]:
    from rich.text import Text

    yield Text.assemble(
        ("Cross-attention of " if e.kind == "cross" else "Attention of ", ""), (_name(e, e.token), "bold"),
        (f" (token {e.token}), layer {e.layer} of 0..", ""),
        (f"{e.num_layers - 1}, head {e.head} of 0..{e.num_heads - 1}", ""),
    )  # fmt: skip
    yield Text(f"{printable(e.model)}\n“{excerpt(e.text, _MAX_TEXT)}”", style="dim")
    if len(e.pieces) > 1:
        pieces = ", ".join(f"{_name(e, piece)} ({piece})" for piece in e.pieces)
        yield Text(f"The word is {len(e.pieces)} tokens: {pieces}. This is the first; --token asks for one.")


def _steps(e: Explanation) -> Iterator[tuple[str, "list[RenderableType]"]]:
    """The steps: the title of each, and what is shown under it."""
    from rich.text import Text

    # The steps in the order in which the model takes them.
    yield "Tokens and their ids", [Text(_tokens(e))]

    token = _name(e, e.token)
    learned = [("learned", e.learned), *([] if e.scaled is None else [("scaled", e.scaled)])]
    yield f"Learned embedding of {token}: row {e.token_ids[e.token]} of the table", _vectors(learned)

    summands = [(f"position {e.token}", e.position), ("token type", e.token_type)]
    added = [(name, values) for name, values in summands if values is not None]
    names = " and ".join("position" if name.startswith("position") else name for name, _ in added)
    total = sum((values for _, values in added), learned[-1][1])
    sums = [("sum", total)] if added else []
    if not np.array_equal(total, e.embedded):
        sums.append((e.embedding_norm or "enters layer 0", e.embedded))
    norm = f", then {e.embedding_norm}" if e.embedding_norm else ""
    title = f"{names.capitalize()}, added{norm}" if names else f"Nothing is added for the position{norm}"
    yield title, _vectors([*added, *sums])

    source = "what the embeddings give" if e.layer == 0 else f"the output of layer {e.layer - 1}"
    yield f"Input x of layer {e.layer}: {source}", _vectors([("x", e.x)])

    made_from = f"x by way of {e.before[-1].name}" if e.before else e.made_from
    query = [*((step.name, step.vector) for step in e.before), ("q", e.q)]
    yield f"Query q, made from {made_from} ({len(e.q)} dimensions)", _vectors(query)

    yield f"Keys k, the scores {e.formula}, scaled, and their softmax: the attention weights", _attention(e)

    context = [_values(e), *_vectors([("context", e.context)]), _first_of_context(e)]
    yield f"Context: the sum of weight x value over all tokens ({len(e.context)} dimensions)", context

    joined = [("joined", e.joined), *([] if e.output is None else [("output", e.output)])]
    heads = f"s of all {e.num_heads} heads joined" if e.num_heads > 1 else " of the one head"
    yield f"The context{heads}, then projected", _vectors(joined)

    if e.after:
        last = _vectors((step.name, step.vector) for step in e.after)
        yield f"To layer {e.layer}'s output: residuals, norms and feed-forward network", last
    else:
        title = f"Layer {e.layer}'s output, after what else the layer does"
        yield title, _vectors([("contextual", e.contextual)])


def _attention(e: Explanation) -> "list[RenderableType]":
    from rich.text import Text

    # One score is worked out, that of the largest weight.
    best = int(np.argmax(e.weights))
    terms = [(e.left[place], e.right[best, place]) for place in range(min(2, len(e.left)))]
    sink = (
        f"The rest, {e.sink:.6f}, goes to the head's sink, which has no value." if e.sink is not None else ""
    )
    return [
        Text(f"The scale is {e.scale:.6g}{_root(e.scale, len(e.q))}.", style="dim"),
        _keys(e),
        Text(f"The weights of all {len(e.key_tokens)} tokens sum to {e.weights.sum():.6f}.", style="dim"),
        *([Text(sink, style="dim")] if sink else []),
        Text(f"\nWorked out for the largest, {_key(e, best)}:"),
        _worked(e.formula, terms, len(e.left), e.scores[best]),
        _softmax(e, best),
    ]


def _first_of_context(e: Explanation) -> "RenderableType":
    best = np.argsort(-e.weights, kind="stable")[:2].tolist()
    return _worked(
        "context[0]", [(e.weights[key], e.v[key, 0]) for key in best], len(e.weights), e.context[0]
    )


def _name(e: Explanation, token: int) -> str:
    return excerpt(e.tokens[token], 30)


def _key(e: Explanation, token: int) -> str:
    return excerpt(e.key_tokens[token], 30)


def _tokens(e: Explanation) -> str:
    """The tokens around the one that is worked out."""
    count = len(e.tokens)
    # The token in the middle, but for the ends of the text.
    start = max(0, min(e.token - _MAX_TOKENS // 2, count - _MAX_TOKENS))
    shown = range(start, min(count, start + _MAX_TOKENS))
    before = f"({start} more) … " if start else ""
    after = f" … ({count - shown.stop} more)" if shown.stop < count else ""
    return before + " ".join(f"{_name(e, place)}:{e.token_ids[place]}" for place in shown) + after


def _root(scale: float, head_dim: int) -> str:
    return f" = 1/√{head_dim}" if np.isclose(scale, head_dim**-0.5, rtol=1e-6) else ""


def _number(value: float, width: int, decimals: int = 4) -> str:
    """The value in `width` columns at most: with fewer decimals, or a power of ten, where it is large."""
    # From the most decimals to none.
    written = (f"{value:.{places}f}" for places in range(decimals, -1, -1))
    return next((text for text in written if len(text) <= width), f"{value:.0e}")


def _vectors(named: Iterable[tuple[str, np.ndarray]]) -> "list[RenderableType]":
    """The first numbers of each vector, in columns."""
    from rich.text import Text

    def line(name: str, values: np.ndarray) -> Text:
        shown = " ".join(f"{_number(value, 8):>8}" for value in values[:5])
        more = f" … {len(values)} numbers" if len(values) > 5 else ""
        return Text(f"  {name:<16} {shown}{more}", no_wrap=True, overflow="crop")

    return [line(name, values) for name, values in named]


def _worked(name: str, factors: list[tuple[float, float]], count: int, total: float) -> "RenderableType":
    """A sum of products, by its first terms."""
    from rich.text import Text

    terms = " + ".join(f"{_number(a, 8)} x {_number(b, 8)}" for a, b in factors)
    more = f" + … {count} terms" if count > len(factors) else ""
    return Text(f"  {name} = {terms}{more} = {_number(total, 9)}")


def _softmax(e: Explanation, key: int) -> "RenderableType":
    from rich.text import Text

    # The mask hides every key from this query.
    if np.isneginf(e.masked_scores[key]):
        return Text("  weight = 0, since the mask forbids every key")
    # Less the largest, so that no power overflows: the quotient is the same.
    powers = np.exp(e.masked_scores.astype(np.float64) - float(e.masked_scores[key])).sum()
    over = "keys"
    if e.sink is not None:
        over = "keys and sink"
        # Powers are as weights are: the sink's follows from its weight. A sink may take everything.
        powers = powers + (e.sink / float(e.weights[key]) if e.weights[key] else np.inf)
    score, least = _number(e.masked_scores[key], 9), _number(float(powers), 9)
    return Text(
        f"  weight = exp({score}) / sum over {over} of exp(scaled)\n"
        f"         = 1 / sum of exp(scaled - {score}) = 1 / {least} = {_number(e.weights[key], 7)}"
    )


def _keys(e: Explanation) -> "Table":
    """The keys with the largest weights: key, scores before and after scaling, the mask, the weight."""
    hidden = ~np.isfinite(e.masked_scores)
    # The largest weights, shown in the order of the text.
    order = np.argsort(-e.weights, kind="stable")[:_MAX_KEYS]
    score = e.formula if len(e.formula) <= 9 else "score"
    named = [("k[0]", 7), ("k[1]", 7), (score, 9), ("scaled", 8), *([("mask", 4)] if hidden.any() else [])]
    table = _table(
        ["", "key of", *(name for name, _ in named), "weight", ""], [4, 14, *(w for _, w in named), 7]
    )
    for key in sorted(order.tolist()):
        _row(
            table,
            str(key),
            _key(e, key),
            _number(e.k[key, 0], 7, 3),
            _number(e.k[key, 1], 7, 3) if e.k.shape[1] > 1 else "",
            _number(e.scores[key], 9),
            _number(e.scaled_scores[key], 8),
            *(["-inf" if hidden[key] else ""] if hidden.any() else []),
            _number(e.weights[key], 7),
            "█" * round((9 if hidden.any() else 14) * float(e.weights[key])),
            bold=key == order[0],
        )
    # What is not listed is summed up in a row.
    rest = len(e.key_tokens) - len(order)
    if rest:
        left = max(0.0, float(e.weights.sum() - e.weights[order].sum()))
        _row(table, "", f"{rest} more", *[""] * len(named), f"{left:.4f}", "")
    return table


def _values(e: Explanation) -> "Table":
    """The values of the keys with the largest weights, and what each adds to the context."""
    order = np.argsort(-e.weights, kind="stable")[:_MAX_VALUES].tolist()
    wide = e.v.shape[1] > 1
    columns = ["", "value of", "weight", "v[0]", *(["v[1]"] if wide else []), "weight x v[0]"]
    table = _table(columns, [4, 14, 7, 9, *([9] if wide else []), 13])
    for key in order:
        share = e.weights[key] * e.v[key, 0]
        numbers = [_number(e.v[key, place], 9) for place in range(2 if wide else 1)]
        _row(table, str(key), _key(e, key), _number(e.weights[key], 7), *numbers, _number(share, 13))
    rest = len(e.key_tokens) - len(order)
    if rest:
        left = float(e.context[0] - (e.weights[order] * e.v[order, 0]).sum())
        _row(table, "", f"{rest} more", *[""] * (3 if wide else 2), _number(left, 13))
    return table


def _table(columns: Sequence[str], widths: Sequence[int]) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for place, name in enumerate(columns):
        width = widths[place] if place < len(widths) else None
        if place == 1:
            table.add_column(name, width=width, no_wrap=True, overflow="ellipsis")
        else:
            table.add_column(name, width=width, justify="left" if width is None else "right")
    return table


def _row(table: "Table", *cells: str, bold: bool = False) -> None:
    from rich.text import Text

    # Texts, not strings: rich would read "[SEP]" as its own markup.
    table.add_row(*map(Text, cells), style="bold" if bold else None)
