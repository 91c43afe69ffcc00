"""Reading a model as it runs: the trace, the worked calculation, one word between sentences."""

from regard.tracing._compare import compare
from regard.tracing._explain import explain
from regard.tracing._page import page_record
from regard.tracing._run import trace_text
from regard.tracing._trace import Selector, Trace

__all__ = ["Selector", "Trace", "compare", "explain", "page_record", "trace_text"]
