"""How differently two traces attend, a table of layers and heads: the record, and how it is printed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.views._printable import excerpt

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Columns of heads that fit 80 characters beside the layer.
_HEADS_A_TABLE = 12
_MAX_TEXT = 200


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HeadDivergences:
    """The Jensen-Shannon divergence of each head between two runs, in bits.

    Args:
        shared: what they have in common: the model, or the text.
        names: what the two are: two texts, or two models.
        kind: "encoder", "decoder" or "cross".
        layers: the numbers of the layers.
        bits: (layers, heads), from 0 to 1; NaN where there is no such head.
        rows: how many rows were compared.
        coverage: the share of tokens that were compared.
    """

    shared: str
    names: tuple[str, str]
    kind: str
    layers: tuple[int, ...]
    bits: np.ndarray
    rows: int
    coverage: float

    def __repr__(self) -> str:
        layers, heads = self.bits.shape
        return f"HeadDivergences({self.kind}, {layers} layers x {heads} heads, {self.rows} rows)"

    def to_json(self) -> dict[str, Any]:
        """Every field under its name; `bits` as nested lists, NaN as None."""
        numbers = self.bits.astype(object)
        numbers[np.isnan(self.bits)] = None
        return {
            "shared": self.shared,
            "names": list(self.names),
            "kind": self.kind,
            "layers": list(self.layers),
            "bits": numbers.tolist(),
            "rows": self.rows,
            "coverage": self.coverage,
        }


def print_divergences(found: HeadDivergences, console: "Console") -> None:
    """A row a layer and a column a head, in 80 columns; the largest are bold."""
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"{excerpt(found.shared, _MAX_TEXT)}: how differently each head attends", style="dim"))
    for number, name in enumerate(found.names, start=1):
        console.print(Text.assemble((f"{number} ", "bold"), excerpt(name, _MAX_TEXT)))
    told = (
        f"Jensen-Shannon divergence in bits, {found.kind} attention, {found.rows:,} rows, "
        f"{found.coverage:.0%} of tokens"
    )
    console.print(Text(told, style="dim"))
    heads = found.bits.shape[1]
    for start in range(0, heads, _HEADS_A_TABLE):
        shown = range(start, min(heads, start + _HEADS_A_TABLE))
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
        table.add_column("layer", justify="right", width=5)
        for head in shown:
            table.add_column(str(head), justify="right", width=5)
        for layer, row in zip(found.layers, found.bits, strict=True):
            table.add_row(str(layer), *(_cell(row[head], found.bits) for head in shown))
        console.print()
        console.print(table)
    place, head = divmod(int(np.nanargmax(found.bits)), heads)
    most = f"most in layer {found.layers[place]}, head {head}: {found.bits[place, head]:.3f}"
    console.print()
    console.print(Text(f"mean {np.nanmean(found.bits):.3f}, {most}"))


def _cell(bits: float, among: np.ndarray) -> "Text":
    from rich.text import Text

    if np.isnan(bits):
        return Text("-")
    high = bits > 0 and bits >= np.nanquantile(among, 0.9)
    return Text(f"{bits:.3f}", style="bold" if high else "")
