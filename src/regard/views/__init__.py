"""Pictures of attention, drawn from plain records: numpy arrays and text, never a model.

The interactive page keeps q and k and works the weights out when someone looks, so that a whole model's
attention over hundreds of tokens is one file of a few megabytes.
"""

from regard.views._comparison import Comparison, plot_comparison, print_comparison
from regard.views._explanation import Explanation, print_explanation
from regard.views._page import Page, render_page, write_page
from regard.views._positions import plot_positions
from regard.views._printable import printable
from regard.views._records import AttentionRecord, PageToken

__all__ = [
    "AttentionRecord",
    "Comparison",
    "Explanation",
    "Page",
    "PageToken",
    "plot_comparison",
    "plot_positions",
    "print_comparison",
    "print_explanation",
    "printable",
    "render_page",
    "write_page",
]
