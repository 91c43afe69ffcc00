"""What becomes of a text without one head, or where no other word looks at one: a page's "What if not?"."""

from typing import Any

from regard.core.tensors import cosine
from regard.tracing.edits import Edit, edited
from regard.tracing.pages._story import next_tokens
from regard.tracing.record import KeepPolicy, Trace
from regard.tracing.run import TraceOfRun
from regard.views import plain

_RESIDUAL = KeepPolicy(keep="residual")


def left_by(trace: Trace, edit: Edit) -> dict[str, Any]:
    """What an edit leaves of the run of one text, as plain values.

    `cosine` of each contextual embedding to what it becomes; and where the model says what comes next,
    `next`: the likeliest tokens after the last one, `before` and `after` the edit.
    """
    encoding, loaded = trace.stack(None).encoding, trace.require_model()
    other = TraceOfRun.of_encoding(edited(loaded, [edit]), encoding, keeping=_RESIDUAL)
    keeping = trace.stack(None).keeping
    if not keeping.hidden or keeping.layers is not None:
        trace = TraceOfRun.of_encoding(loaded, encoding, keeping=_RESIDUAL)
    likeness = cosine(trace.embeddings().double(), other.embeddings().double())
    found: dict[str, Any] = {"cosine": plain(likeness.cpu().numpy(), 4)}
    before, after = next_tokens(trace), next_tokens(other)
    return found | ({"next": {"before": before, "after": after}} if before else {})
