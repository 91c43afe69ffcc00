"""What each head does over a text or a corpus: patterns, how strongly a head follows them, and how surely."""

from regard.tracing.patterns._bootstrap import FEWEST_UNITS, query_draws
from regard.tracing.patterns._cards import HeadOptions, heads, heads_of_trace
from regard.tracing.patterns._patterns import (
    Alignment,
    Broadcast,
    DelimiterSink,
    DuplicateToken,
    HeadPattern,
    Induction,
    KeyPattern,
    Offset,
    RowPattern,
    Sides,
    default_patterns,
)
from regard.tracing.patterns._reading import TextOrIds, repeated_tokens
from regard.tracing.patterns._table import HeadCard, HeadExample, HeadFinding, HeadTable
from regard.tracing.patterns._table_file import check_heads_file

__all__ = [
    "FEWEST_UNITS",
    "Alignment",
    "Broadcast",
    "DelimiterSink",
    "DuplicateToken",
    "HeadCard",
    "HeadExample",
    "HeadFinding",
    "HeadOptions",
    "HeadPattern",
    "HeadTable",
    "Induction",
    "KeyPattern",
    "Offset",
    "RowPattern",
    "Sides",
    "TextOrIds",
    "check_heads_file",
    "default_patterns",
    "heads",
    "heads_of_trace",
    "query_draws",
    "repeated_tokens",
]
