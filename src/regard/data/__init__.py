"""Rows of texts and other values from files: plain text, JSON lines, CSV, TSV and Parquet, and stdin.

Read one after the other in constant memory, from the beginning as often as anybody likes.
"""

from regard.data._files import FORMATS, Csv, Files, Unit
from regard.data._opening import Opened, unreadable
from regard.data._parquet_source import ROWS, ParquetSource, column_values, is_text, is_words
from regard.data._records import LONGEST, JsonSource, TextSource, no_text
from regard.data._rows import ParallelRows, Row, Rows, Source, open_sources
from regard.data._tagged import Parts, Tagged, Word, conllu, vrt

__all__ = [
    "Csv",
    "ParallelRows",
    "Rows",
]
