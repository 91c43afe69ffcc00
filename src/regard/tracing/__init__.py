"""Reading a model as it runs: the trace, the worked calculation, one word between sentences."""

from regard.tracing._compare import compare
from regard.tracing._explain import explain
from regard.tracing._lens import LensNetwork, lens
from regard.tracing._page import page_record
from regard.tracing._parity import LayerParity, Parity
from regard.tracing._passage import AttentionTrace, Passage
from regard.tracing._run import trace_ids, trace_text
from regard.tracing._size import bytes_at, kept_bytes
from regard.tracing._trace import Kind, Selector, Trace

__all__ = [
    "AttentionTrace",
    "Kind",
    "LayerParity",
    "LensNetwork",
    "Parity",
    "Passage",
    "Selector",
    "Trace",
    "bytes_at",
    "compare",
    "explain",
    "kept_bytes",
    "lens",
    "page_record",
    "trace_ids",
    "trace_text",
]
