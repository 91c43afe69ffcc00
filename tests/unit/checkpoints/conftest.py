"""A Hugging Face cache of each test's own, and no hub behind it."""

from pathlib import Path

import pytest
from huggingface_hub import constants


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, hf_home: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hf_home / "hub"))
