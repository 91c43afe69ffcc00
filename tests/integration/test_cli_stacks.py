"""Commands on models with an encoder and a decoder: both have to be said, and the messages say how."""

import re

import pytest

from integration import test_cli
from integration.test_cli import Run, refused
from unit.models import folders

run = test_cli.run


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny T5 with a tokenizer of the words w0, w1 and on."""
    folder = folders.write(tmp_path_factory.mktemp("t5"), "t5")
    folders.write_tokenizer(folder, folders.CONFIGS["t5"].vocab_size)
    return str(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-w", "w3"), r'--kind must be "encoder" or "decoder" or "cross", the attention .* has\.$'),
        (("-w", "w5", "--kind", "cross"), '--target must be given for cross attention: .*"a river"'),
        (("-w", "w5", "--kind", "decoder"), "--target must be given for decoder attention"),
        (("-w", "w9", "--kind", "cross", "--target", "w5 w6"), "w9"),
    ],
)
def test_what_has_to_be_said(run: Run, t5: str, options: tuple[str, ...], message: str) -> None:
    done = run("explain", "w3 w4", "-m", t5, *options)
    err = refused(done, 2)
    assert re.search(message, err), err


def test_each_kind_is_worked_out(run: Run, t5: str) -> None:
    code, out, err = run("explain", "w3 w4", "-m", t5, "-w", "w3", "--kind", "encoder")
    assert (code, err) == (0, "")
    assert out.startswith("Attention of w3 (token 0)")
    code, out, err = run("explain", "w3 w4", "-m", t5, "-w", "w6", "--kind", "cross", "--target", "w5 w6")
    assert (code, err) == (0, "")
    assert out.startswith("Cross-attention of w6")
