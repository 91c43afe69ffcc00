"""`regard scaling`: what attention costs as texts grow, and what cheaper attention costs in exactness."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli._options import JSON, flag, option
from regard.cli._output import BarOrLines, check_outputs, console, print_json, print_path
from regard.core.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from regard.scaling import Cost, Exponent, Scaling


def scaling(
    attention: list[str] | None = option(
        "--attention -a NAME",
        "softmax (the fused kernel, always measured), matrix (written out), performer, linear, "
        "window; not causal linformer; only causal expire-span. Again for several; by default all of "
        "these.",
    ),
    lengths: str | None = option("--lengths N,N,..", "Tokens; by default 256,512,1024,2048,4096."),
    causal: bool = flag("--causal", "Let each token see only what is before it."),
    heads: int = option("--heads N", "Heads.", 12),
    head_dim: int = option("--head-dim N", "The size of a query.", 32),
    output: Path | None = option("--output -o FILE", "Draw the curves: an .svg, .png or .pdf."),
    as_json: bool = JSON,
) -> None:
    """Measure time and memory of attention over length, fit the exponents, and find where lines cross.

    Each is compared with the fused kernel in the same run. The error is how far its context is from that of
    exact attention on the default model's own q, k and v, the mean over all heads.
    """
    check_outputs({"--output": output})
    # Checked before torch is imported.
    asked = _lengths(lengths)
    from regard.scaling import LENGTHS
    from regard.scaling import scaling as measured
    from regard.views import check_format

    if output is not None:
        # The ending of the picture, before minutes of measuring.
        check_format(output)
    with BarOrLines("measurements") as progress:
        result = measured(
            attention or None,
            asked or LENGTHS,
            causal=causal,
            heads=heads,
            head_dim=head_dim,
            advance=progress.show,
        )
    if output is not None:
        result.picture().write(output)
    if as_json:
        print_json(result.to_dict())
        return
    drawn = console()
    drawn.print(_table(result))
    kind = ", causal" if result.causal else ""
    drawn.print(
        f"Milliseconds, medians; {result.heads} heads of {result.head_dim}{kind}, {result.on_threads}. "
        "x: the slope over the longer half of the lengths, and how far that between two of them is from it. "
        f"Error: of the context, over {result.tokens} tokens in the default model's own heads."
        + (
            " Linformer's mixtures are random, not learned."
            * any(each.name == "linformer" for each in result.costs)
        ),
        style="dim",
        markup=False,
    )
    if output is not None:
        print_path(output)


def _lengths(given: str | None) -> list[int]:
    # 1_024 is 1024.
    parts = [] if given is None else [each.strip().replace("_", "") for each in given.split(",")]
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise InputError(f"--lengths must be whole numbers with commas between, as 512,1024; got {given!r}.")
    return [int(part) for part in parts]


def _table(found: "Scaling") -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("attention", no_wrap=True)
    for length in found.lengths:
        table.add_column(f"{length:,}", justify="right")
    for title in ("time ~ N^x", "memory ~ N^x", "MiB at most", "faster from", "error"):
        table.add_column(title, justify="right")
    for cost in found.costs:
        table.add_row(
            cost.name,
            *(f"{1e3 * each:.3g}" if each < 1 else f"{1e3 * each:,.0f}" for each in cost.seconds),
            _power(cost.exponent),
            _power(cost.memory_exponent),
            f"{cost.peak[-1] / 2**20:,.1f}" if cost.peak else "-",
            _from(cost, found),
            f"{cost.error:.{1 if cost.error < 1e-4 else 2}g}",
        )
    return table


def _power(exponent: "Exponent | None") -> str:
    if exponent is None:
        return "-"
    return f"{exponent.value:.1f}" + ("" if exponent.spread is None else f" ±{exponent.spread:.1f}")


def _from(cost: "Cost", found: "Scaling") -> str:
    # The first is what the others are compared with.
    if cost is found.costs[0]:
        return "-"
    # Slower at every length that was measured.
    if cost.crossing is None:
        return f"> {found.lengths[-1]:,}"
    return f"{cost.crossing:,.0f}" if cost.crossing else f"< {found.lengths[0]:,}"
