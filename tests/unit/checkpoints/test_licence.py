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
        ("license: apache-2.0", "apache-2.0"),
        ("language: en\nlicense: mit\ntags:\n- x", "mit"),
        ("license: 'mit'", "mit"),
        ('license: "cc-by-sa-4.0"', "cc-by-sa-4.0"),
        ("license:   bsd-3-clause   # as the paper says", "bsd-3-clause"),
        ("license: [mit, 'apache-2.0']", "mit, apache-2.0"),
        ("license:\n- mit\n- apache-2.0\ntags:\n- gpl", "mit, apache-2.0"),
        ("license:\n  - mit\n  # more\n  - apache-2.0", "mit, apache-2.0"),
        ("license: # both\n- mit", "mit"),
        ("license: other\nlicense_name: gemma", "gemma"),
        ("license: other\nlicense_name: 'A \"free\" licence'", 'A "free" licence'),
        ("license_name: gemma\nlicense: Other", "gemma"),
        ("license: other\nlicense_link: LICENSE", "other"),
        ("license: mit\nlicense_name: something", "mit"),
        ("license: llama3.1", "llama3.1"),
        ("license: mit\r\ntags: x\r", "mit"),
        # what is not there, or is not for this small reader
        ("language: en", None),
        ("license_name: gemma", None),
        ("license:", None),
        ("license: null", None),
        ("license: ~", None),
        ("license: unknown", None),
        ("license:\n  name: mit", None),
        ("license: |\n  mit", None),
        ("license: &a mit", None),
        ("license: !!str mit", None),
        ("license: 'it''s'", None),
        ('license: "\\x6dit"', None),
        ("license: {name: mit}", None),
        ("license:mit", None),
        ("model-index:\n- name: x\n  license: mit", None),
        ("tags:\n- license: mit", None),
        ("# license: mit", None),
        ("license:\n  name: x\n- mit", None),
    ],
    ids=repr,
)
def test_a_card(tmp_path: Path, block: str, licence: str | None) -> None:
    assert licence_of(card(tmp_path, f"---\n{block}\n---\n# A model\nlicense: wtfpl\n")) == licence


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# A model\n---\nlicense: mit\n---\n",
        "---\nlicense: mit\n",
        "----\nlicense: mit\n---",
        "---",
        "license: mit",
    ],
    ids=repr,
)
def test_no_block(tmp_path: Path, text: str) -> None:
    assert licence_of(card(tmp_path, text)) is None


def test_a_byte_order_mark_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"\xef\xbb\xbf---\nauthor: \xff\xfe\nlicense: mit\n---\n")
    assert licence_of(tmp_path) == "mit"


def test_no_card(tmp_path: Path) -> None:
    assert licence_of(tmp_path) is None
    assert licence_of(tmp_path / "nowhere") is None
    (tmp_path / "README.md").mkdir()
    assert licence_of(tmp_path) is None


def test_a_card_without_end_is_not_read_whole(tmp_path: Path) -> None:
    assert licence_of(card(tmp_path, "---\nlicense: mit\n" + "x: y\n" * 100_000 + "---\n")) is None
