"""The licence on a model's card."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.checkpoints import licence_of


def card(folder: Path, text: str) -> Path:
    (folder / "README.md").write_bytes(text.encode())
    return folder


@pytest.mark.parametrize(
    ("block", "licence"),
    [
        ("language: en\nlicense: mit\ntags:\n- x", "mit"),
        ("license:   bsd-3-clause   # as the paper says", "bsd-3-clause"),
        ("license: [mit, 'apache-2.0']", "mit, apache-2.0"),
        ("license:\n  - mit\n  # more\n  - apache-2.0", "mit, apache-2.0"),
        ("license: other\nlicense_name: gemma", "gemma"),
        ("license_name: gemma\nlicense: Other", "gemma"),
        ("license: other\nlicense_link: LICENSE", "other"),
        ("license: mit\nlicense_name: something", "mit"),
        ("license: mit\r\ntags: x\r", "mit"),
        ("license_name: gemma", None),
        ("license:", None),
        ("license: unknown", None),
        ("license:\n  name: mit", None),
        ("license: 3", None),
        ("model-index:\n- name: x\n  license: mit", None),
        ("license: [", None),
        ("- license", None),
    ],
    ids=repr,
)
def test_a_card(tmp_path: Path, block: str, licence: str | None) -> None:
    assert licence_of(card(tmp_path, f"---\n{block}\n---\n# A model\nlicense: wtfpl\n")) == licence


def test_no_block(tmp_path: Path) -> None:
    for text in ("", "# A model\n---\nlicense: mit\n---\n", "---\nlicense: mit\n", "license: mit"):
        assert licence_of(card(tmp_path, text)) is None
    (tmp_path / "README.md").write_bytes(b"---\nauthor: \xff\xfe\nlicense: mit\n---\n")
    assert licence_of(tmp_path) is None


def test_no_card(tmp_path: Path) -> None:
    assert licence_of(tmp_path) is None
    assert licence_of(tmp_path / "nowhere") is None
    (tmp_path / "README.md").mkdir()
    assert licence_of(tmp_path) is None
