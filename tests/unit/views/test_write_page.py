"""A page is written whole or not at all, and what stood there before survives a failure."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import OutputError
from regard.views import AttentionRecord, _assets, render_page, usages_page
from unit.views.conftest import write_page

MakeRecord = Callable[..., AttentionRecord]


def test_writes_what_render_returns(make_record: MakeRecord, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    page = write_page(make_record(), path)
    assert path.read_bytes() == page.html.encode()
    assert page.html == render_page(make_record()).html
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_replaces_and_follows_a_link(make_record: MakeRecord, tmp_path: Path) -> None:
    target = tmp_path / "target.html"
    target.write_text("old")
    link = tmp_path / "link.html"
    link.symlink_to(target)
    page = write_page(make_record(), link)
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == page.html


def test_permissions_are_those_of_any_new_file(make_record: MakeRecord, tmp_path: Path) -> None:
    path, usual = tmp_path / "page.html", tmp_path / "usual"
    usual.touch()
    write_page(make_record(), path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)


def test_missing_folder(make_record: MakeRecord, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "page.html"
    with pytest.raises(OutputError, match=r"missing/page\.html' .*No such file") as caught:
        write_page(make_record(), path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_replaced(make_record: MakeRecord, tmp_path: Path, make: Any) -> None:
    path = tmp_path / "page.html"
    make(path)
    before = path.stat().st_mode
    with pytest.raises(OutputError, match="not a plain file"):
        write_page(make_record(), path)
    assert path.stat().st_mode == before
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_impossible_name(make_record: MakeRecord) -> None:
    with pytest.raises(OutputError, match="null"):
        write_page(make_record(), "a\0b.html")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failure_halfway_leaves_the_old_page(
    make_record: MakeRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OutputError, match="No space left on device"):
        write_page(make_record(), path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_it_runs_its_own_script_and_asks_its_server_alone() -> None:
    html = usages_page("<b>&amp;</b>", "2 texts")
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in policy
    assert "<b>" not in html
    for source in (_assets.usages_script(), _assets.usages_style()):
        assert _assets.digest(source) in policy
        assert source in html
        assert not re.search(r"</script|</style|<!--|innerHTML|Storage|cookie", source)
