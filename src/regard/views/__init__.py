"""Pictures of attention, drawn from plain records: numpy arrays and text, never a model.

The interactive page keeps q and k and works the weights out when someone looks, so that a whole model's
attention over hundreds of tokens is one file of a few megabytes.
"""

from regard.views._arrays import view
from regard.views._blocks import MOST_POSITIONS, plain, value_contexts
from regard.views._budget import MOST_MB, MOST_MEASURES, matrix_bytes
from regard.views._contents import page_contents
from regard.views._layer_record import (
    LayerRecord,
    MaskRecord,
    RotaryRecord,
    ScorerName,
    ScorerRecord,
    weight_rows,
)
from regard.views._live import (
    STORED,
    LiveMeasures,
    LivePooling,
    LiveRecord,
    LiveRun,
    LiveWeights,
    ServedRecord,
    Work,
)
from regard.views._page import Page, render_page, usages_page
from regard.views._picture import HeadPicture, PictureForm
from regard.views._plots import Cloud, CurvePicture, Panel, PointPicture, Series
from regard.views._preview import Preview, preview_of
from regard.views._records import (
    MEASURES,
    SHOWN,
    AttentionRecord,
    HeadName,
    HeadStatistics,
    MeasureName,
    MeasureRecord,
    PageToken,
    PositionsRecord,
    RecordKind,
    Side,
    StoryNeurons,
    StoryPart,
    StoryRecord,
    StoryRow,
    Subject,
    check_measures,
    every_head,
)
from regard.views._said import claims, moved
from regard.views._sheet import check_format, new_figure, plot_positions, write_figure
from regard.views._start import find_start
from regard.views._widget import make_widget, marimo_object, notebook_bundle

__all__ = [
    "CurvePicture",
    "HeadPicture",
    "Page",
    "Panel",
    "Series",
    "plot_positions",
    "view",
]
