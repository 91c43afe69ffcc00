"""How a command ends."""

import pytest
import typer

from regard.cli import main
from regard.core.errors import InputError, OtherProcessError, RegardError


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (RegardError("it broke."), 1, "regard: it broke.\n"),
        (InputError("it is missing."), 2, "regard: it is missing.\n"),
        (OtherProcessError("another says why."), 1, ""),
    ],
)
def test_an_error_is_one_line_of_one_process(
    error: Exception,
    code: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing(*given: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(typer.Typer, "__call__", failing)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (code, told)
