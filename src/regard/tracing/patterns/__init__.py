"""What each head does over a text or a corpus: patterns, how strongly a head follows them, and how surely."""

from regard.tracing.patterns._card import HeadCard, HeadExample, HeadFinding
from regard.tracing.patterns._counter import FEWEST_UNITS, query_draws
from regard.tracing.patterns._heads import HeadOptions, TextOrIds, heads, heads_of_trace, repeated_tokens
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
from regard.tracing.patterns._rule import RULE
from regard.tracing.patterns._table import HeadTable
