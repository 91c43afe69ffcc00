"""The Python of docs/howto/serving.md, against a server."""

import re
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn

import regard
from regard.serving import app_of, listen

PAGE = Path(__file__).parents[2] / "docs/howto/serving.md"


def test_the_pages_code_runs() -> None:
    on = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app_of([regard.load()]), log_config=None))
    thread = Thread(target=server.run, kwargs={"sockets": [on]})
    thread.start()
    try:
        names: dict[str, Any] = {}
        for code in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
            exec(code.replace(":8000", f":{on.getsockname()[1]}"), names)
        names["client"].close()
        assert len(names["answer"].data[0].embedding) == 384
    finally:
        server.should_exit = True
        thread.join()
