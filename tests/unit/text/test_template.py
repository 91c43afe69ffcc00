"""Templates in their process: what would harm ends in one line, in bounded time and memory."""

import time

import pytest

from regard.core.errors import CheckpointError, InputError, RegardError
from regard.text import _chat
from unit.text.chats import CHATML, rendered_here, tokenizer

QUESTION = {"role": "user", "content": "Why?"}

ROOM = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
HOSTILE = {
    "an endless loop": (ROOM, "it takes more than 1 seconds"),
    "endless calls": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "it takes more than 1 seconds",
    ),
    "a tree of lists": (
        "{% set n = namespace(a=1) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
        "it takes more than 1 seconds|it takes more than 512 MiB",
    ),
    "much text": ("{% for a in range(9999) %}{{ 'x' * 999 }}{% endfor %}", "more than 4,194,304 characters"),
    "large text": ("{{ 'x' * 10**10 }}", "it takes more than 512 MiB"),
    "wide text": ("{{ 'x'|center(10**10) }}", "it takes more than 512 MiB"),
    "a class": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "'__class__' of 'str' object is unsafe"),
    "a module": (
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "'__init__' of 'type' object is unsafe",
    ),
    "a change": ("{{ messages.append(1) }}", "'append' of 'list' object is unsafe"),
    "a file": ("{% include '/etc/passwd' %}", "no loader"),
    "no grammar": ("{% for", "unexpected"),
    "brackets": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "recursion"),
    "a missing name": ("{{ messages[0].x.y }}", "'dict object' has no attribute 'x'"),
    "no text": ("  ", "it makes no text of them"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_cannot_harm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template, told = HOSTILE[name]
    monkeypatch.setattr(_chat, "SECONDS", 1.0 if "1 seconds" in told else 60.0)
    begun = time.monotonic()
    with pytest.raises(
        CheckpointError, match=f"the model's chat template fails on these messages: .*({told})"
    ):
        tokenizer(template).chat([QUESTION])
    assert time.monotonic() - begun < 30


def test_a_template_speaks_to_its_user_in_one_line() -> None:
    template = "{{ raise_exception('roles must\n alternate \x1b[31m' + 'x' * 999) }}"
    with pytest.raises(InputError, match="chat template wants them: roles must alternate ␛") as caught:
        tokenizer(template).chat([QUESTION])
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_a_process_that_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("/nowhere/python", "/bin/false"):
        monkeypatch.setattr("sys.executable", program)
        with pytest.raises(RegardError, match="its process did not start, or was ended"):
            tokenizer().chat([QUESTION])


def test_the_process_gives_what_is_given_here(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tokenizer().chat([QUESTION, {"role": "assistant", "content": "é <|im_end|> \u2028"}])
    monkeypatch.setattr(_chat, "_rendered", rendered_here)
    here = tokenizer(CHATML).chat(found.messages)
    assert (str(found), found.ends, found.seams) == (str(here), here.ends, here.seams)
    assert found.seams
