"""A worked calculation of one token's attention: the record, and its walk-through in a terminal."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.views._printable import excerpt, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

# What is listed before the rest is summed up in one line: a screen's worth.
_MAX_KEYS = 32
_MAX_TOKENS = 64
_MAX_TEXT = 240


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation:
    """Every number between a text and one token's output of one head; vectors are 1-D numpy arrays.

    Args:
        model, text: what was traced.
        kind: whose attention: "encoder", "decoder" (its own), or "cross" (from the decoder to the encoder).
        layer, head: which attention, counted from 0, of num_layers x num_heads.
        token: the query's place among the tokens; `pieces` are those of its word.
        tokens, token_ids: all tokens.
        key_tokens: the tokens that are attended to: those of the encoder for "cross", else `tokens`.
        learned: (d_model,), the token's row in the table of learned embeddings.
        scaled: the same times the model's factor (sqrt(d_model)); None where it has none.
        position, token_type: (d_model,), what is added to it; None where the model adds none.
        x: (d_model,), what the layer reads.
        q: (head_dim,), its query.
        k, v: (keys, head_dim or v_dim), every key token's key and value.
        scores: (keys,), q . k.
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
        contextual: (d_model,), the layer's output, after residual, norm and feed-forward network.
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
    token_ids: tuple[int, ...]
    key_tokens: tuple[str, ...]
    learned: np.ndarray
    scaled: np.ndarray | None
    position: np.ndarray | None
    token_type: np.ndarray | None
    x: np.ndarray
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scores: np.ndarray
    scaled_scores: np.ndarray
    masked_scores: np.ndarray
    weights: np.ndarray
    scale: float
    context: np.ndarray
    joined: np.ndarray
    output: np.ndarray | None
    contextual: np.ndarray
    sink: float | None = None

    def __repr__(self) -> str:
        token = f"token {self.token} {self.tokens[self.token]!r}"
        return f"Explanation({token}, layer {self.layer}, head {self.head})"

    def to_json(self) -> dict[str, Any]:
        """Every field under its name, arrays as nested lists; a score of -inf becomes None."""
        plain: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                numbers = value.astype(object)
                numbers[~np.isfinite(value)] = None
                value = numbers.tolist()
            plain[field.name] = list(value) if isinstance(value, tuple) else value
        return plain


def print_explanation(explanation: Explanation, console: "Console") -> None:
    """Walk through the calculation, readable in 80 columns.

    Args:
        explanation: the record.
        console: where it is printed.
    """
    for part in _steps(explanation):
        console.print(part)


def _steps(e: Explanation) -> Iterator["RenderableType"]:
    from rich.text import Text

    def heading(number: int, title: str) -> Text:
        return Text(f"\n{number}. {title}", style="bold")

    token = _name(e, e.token)
    head_dim, v_dim = len(e.q), len(e.context)
    yield Text.assemble(
        ("Cross-attention of " if e.kind == "cross" else "Attention of ", ""), (token, "bold"),
        (f" (token {e.token}), layer {e.layer} of 0..", ""),
        (f"{e.num_layers - 1}, head {e.head} of 0..{e.num_heads - 1}", ""),
    )  # fmt: skip
    yield Text(f"{printable(e.model)}\n“{excerpt(e.text, _MAX_TEXT)}”", style="dim")
    if len(e.pieces) > 1:
        pieces = ", ".join(f"{_name(e, piece)} ({piece})" for piece in e.pieces)
        yield Text(f"The word is {len(e.pieces)} tokens: {pieces}. This is the first; --token asks for one.")

    yield heading(1, "Tokens and their ids")
    yield Text(_tokens(e))

    yield heading(2, f"Learned embedding of {token}: row {e.token_ids[e.token]} of the table")
    yield _vector("learned", e.learned)
    if e.scaled is not None:
        yield _vector("scaled", e.scaled)

    added = [(f"position {e.token}", e.position), ("token type", e.token_type)]
    names = " and ".join(
        name.partition(" ")[0] if place == 0 else name
        for place, (name, each) in enumerate(added)
        if each is not None
    )
    yield heading(3, f"{names.capitalize()}, added" if names else "Nothing is added for the position")
    for name, values in added:
        if values is not None:
            yield _vector(name, values)

    source = "what the embeddings give" if e.layer == 0 else f"the output of layer {e.layer - 1}"
    yield heading(4, f"Input x of layer {e.layer}: {source}")
    yield _vector("x", e.x)

    made_from = "x after the decoder's own attention" if e.kind == "cross" else "x"
    yield heading(5, f"Query q, made from {made_from} ({head_dim} dimensions)")
    yield _vector("q", e.q)
    yield heading(6, "Every key k, the scores q . k, scaled, and their softmax: the attention weights")
    yield Text(f"The scale is {e.scale:.6g}{_root(e.scale, head_dim)}.", style="dim")
    yield _keys(e)
    total = float(e.weights.sum())
    yield Text(f"The weights of all {len(e.key_tokens)} tokens sum to {total:.6f}.", style="dim")
    if e.sink is not None:
        yield Text(f"The rest, {e.sink:.6f}, goes to the head's sink, which has no value.", style="dim")
    best = np.argsort(-e.weights, kind="stable")[:2].tolist()
    yield Text(f"\nWorked out for the largest, {_key(e, best[0])}:")
    yield _worked(
        "q . k", [(e.q[i], e.k[best[0], i]) for i in range(min(2, head_dim))], head_dim, e.scores[best[0]]
    )
    yield _softmax(e, best[0])

    yield heading(7, f"Context: the sum of weight x value over all tokens ({v_dim} dimensions)")
    yield _vector("context", e.context)
    yield _worked("context[0]", [(e.weights[key], e.v[key, 0]) for key in best], len(e.weights), e.context[0])

    yield heading(8, f"The contexts of all {e.num_heads} heads joined, then projected")
    yield _vector("joined", e.joined)
    if e.output is not None:
        yield _vector("output", e.output)

    yield heading(9, f"Layer {e.layer}'s output, after residual, norm and feed-forward network")
    yield _vector("contextual", e.contextual)


def _name(e: Explanation, token: int) -> str:
    return excerpt(e.tokens[token], 30)


def _key(e: Explanation, token: int) -> str:
    return excerpt(e.key_tokens[token], 30)


def _tokens(e: Explanation) -> str:
    """The tokens around the one that is worked out."""
    count = len(e.tokens)
    start = max(0, min(e.token - _MAX_TOKENS // 2, count - _MAX_TOKENS))
    shown = range(start, min(count, start + _MAX_TOKENS))
    before = f"({start} more) … " if start else ""
    after = f" … ({count - shown.stop} more)" if shown.stop < count else ""
    return before + " ".join(f"{_name(e, place)}:{e.token_ids[place]}" for place in shown) + after


def _root(scale: float, head_dim: int) -> str:
    return f" = 1/√{head_dim}" if np.isclose(scale, head_dim**-0.5, rtol=1e-6) else ""


def _number(value: float, width: int, decimals: int = 4) -> str:
    """The value in so many columns at most: with fewer decimals, or a power of ten, where it is large.

    Example:
        >>> _number(-1.5, 8), _number(-1234.5678, 8), _number(-1e30, 8), _number(float("-inf"), 8)
        ('-1.5000', '-1234.57', '-1e+30', '-inf')
    """
    written = (f"{value:.{places}f}" for places in range(decimals, -1, -1))
    return next((text for text in written if len(text) <= width), f"{value:.0e}")


def _vector(name: str, values: np.ndarray) -> "RenderableType":
    from rich.text import Text

    shown = " ".join(f"{_number(value, 8):>8}" for value in values[:5])
    more = f" … {len(values)} numbers" if len(values) > 5 else ""
    return Text(f"  {name:<12}{shown}{more}", no_wrap=True, overflow="crop")


def _worked(name: str, factors: list[tuple[float, float]], count: int, total: float) -> "RenderableType":
    """A sum of products, by its first terms."""
    from rich.text import Text

    terms = " + ".join(f"{_number(a, 8)} x {_number(b, 8)}" for a, b in factors)
    more = f" + … {count} terms" if count > len(factors) else ""
    return Text(f"  {name} = {terms}{more} = {_number(total, 9)}")


def _softmax(e: Explanation, key: int) -> "RenderableType":
    from rich.text import Text

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
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim", width=80)
    table.add_column("", justify="right", width=4)
    table.add_column("key of", width=14, no_wrap=True, overflow="ellipsis")
    table.add_column("k[0]", justify="right", width=7)
    table.add_column("k[1]", justify="right", width=7)
    table.add_column("q . k", justify="right", width=9)
    table.add_column("scaled", justify="right", width=8)
    table.add_column("weight", justify="right", width=7)
    table.add_column("", width=14)
    order = np.argsort(-e.weights, kind="stable")[:_MAX_KEYS]
    for key in sorted(order.tolist()):
        table.add_row(
            str(key),
            Text(_key(e, key)),  # not a string: rich would read "[SEP]" as its own markup
            _number(e.k[key, 0], 7, 3),
            _number(e.k[key, 1], 7, 3) if e.k.shape[1] > 1 else "",
            _number(e.scores[key], 9),
            _number(e.masked_scores[key], 8),
            _number(e.weights[key], 7),
            "█" * round(14 * float(e.weights[key])),
            style="bold" if key == order[0] else None,
        )
    rest = len(e.key_tokens) - len(order)
    if rest:
        left = max(0.0, float(e.weights.sum() - e.weights[order].sum()))
        table.add_row("", f"{rest} more", "", "", "", "", f"{left:.4f}", "")
    return table
