"""From traces to what people look at: pages, pictures, notebooks, the worked calculation."""

from regard.tracing.pages._explain import explain
from regard.tracing.pages._explanation import Explanation, Step
from regard.tracing.pages._live_page import live_page
from regard.tracing.pages._next import WriteRequest
from regard.tracing.pages._page import page_record
from regard.tracing.pages._pages import (
    comparison_page,
    difference_page,
    display,
    mimebundle,
    page,
    senses_page,
    widget,
    write_page,
    writing_bundle,
    writing_page,
    writing_widget,
)
from regard.tracing.pages._reads import Reads
from regard.tracing.pages._served import DraggedWeight, PageRequest, page_answer, preview, served_page
from regard.tracing.pages._weights import plot, weight_table
