"""A server of tiny models and a small concordance, in this process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import regard
from integration.live_models import live_model
from regard.concordance import Reading, build_index
from regard.serving import Settings, app_of
from unit.concordance.conftest import write_rows
from unit.models.folders import write_chat

Ask = Callable[..., Any]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, regard.Model]:
    """A BERT with a masked-LM head, a GPT-2, and a Llama with a chat template."""
    folder = tmp_path_factory.mktemp("models")
    made = {family: live_model(folder / family, family) for family in ("bert", "gpt2")}
    return made | {"chat": regard.load(write_chat(folder / "chat"))}


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an index."""
    folder = tmp_path_factory.mktemp("served")
    build_index([write_rows(folder / "rows.jsonl")], folder / "small", Reading(date="date", meta=("genre",)))
    return folder / "small"


@pytest.fixture(scope="session")
def client(models: dict[str, regard.Model], index: Path) -> Iterator[TestClient]:
    """Asks the server."""
    with TestClient(app_of(models, settings=Settings(index=index))) as client:
        yield client


@pytest.fixture
def ask(client: TestClient) -> Ask:
    """Posts to a path, and gives what is answered, or the status and the error."""

    def ask(path: str, **body: Any) -> Any:
        answer = client.post(path, json=body)
        return answer.json() if answer.is_success else (answer.status_code, answer.json()["error"])

    return ask
