"""The Python of docs/howto/serving_routes.md, against a server."""

import re
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn

import regard
from regard.concordance import Reading, build_index
from regard.serving import Settings, app_of, listen
from unit.concordance.conftest import write_rows

PAGE = Path(__file__).parents[2] / "docs/howto/serving_routes.md"


def test_the_pages_code_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = tmp_path / "corpus"
    build_index([write_rows(tmp_path / "rows.jsonl")], index, Reading(date="date", meta=("genre",)))
    on = listen("127.0.0.1", 0)
    app = app_of([regard.load()], settings=Settings(index=index))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    thread = Thread(target=server.run, kwargs={"sockets": [on]})
    thread.start()
    try:
        names: dict[str, Any] = {}
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
            exec(code.replace(":8000", f":{on.getsockname()[1]}"), names)
        names["server"].close()
    finally:
        server.should_exit = True
        thread.join()
    words, token, weights, *lines = capsys.readouterr().out.splitlines()
    assert words == "bank 23 27 384"
    assert token.startswith("bank ")
    assert weights.startswith("[[")
    assert len(lines) == 2
