"""Options that say how CSV is written."""

from typing import Annotated

import typer

DelimiterOption = Annotated[
    str | None,
    typer.Option(
        "--delimiter", metavar="CHAR", help=r"The delimiter of CSV, if it is not a comma; \t is a tab."
    ),
]
EscapeOption = Annotated[
    str | None,
    typer.Option("--escape", metavar="CHAR", help=r"The escape of CSV, such as \ of Spark and MySQL."),
]
NoHeaderOption = Annotated[
    bool, typer.Option("--no-header", help="CSV begins with its first row; the columns are 1, 2, ...")
]
