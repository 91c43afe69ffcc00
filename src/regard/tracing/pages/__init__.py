"""From traces to what people look at: pages, pictures, notebooks, the worked calculation."""

from regard.tracing.pages._explain import explain
from regard.tracing.pages._explanation import Explanation, Step
from regard.tracing.pages._live_page import live_page
from regard.tracing.pages._notebook import display, mimebundle, widget, writing_bundle, writing_widget
from regard.tracing.pages._page import page_record
from regard.tracing.pages._pages import (
    comparison_page,
    difference_page,
    page,
    senses_page,
    write_page,
    writing_page,
)
from regard.tracing.pages._served import DraggedWeight, PageRequest, page_answer, served_page
from regard.tracing.pages._weights import plot, weight_table
