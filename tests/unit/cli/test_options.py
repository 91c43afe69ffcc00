"""Options as rows: a default that fits the parameter's type, which mypy cannot see, and words for --help."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from regard.checkpoints import DEFAULT_DECODER, DEFAULT_MODEL
from regard.cli import _options, embed, generate, heads, look, serve, train, translate
from regard.cli._app import app
from regard.cli._usage import RULE, TYPED, typed_names
from regard.core.arguments import limit_of
from regard.decoding import Beams, Rules, Sampling
from regard.embedding import Request, Windows
from regard.serving import Settings as ServerSettings
from regard.tracing.patterns._heads import _Search
from regard.training import Settings, WordSettings


def rows(of: typer.Typer, path: str) -> Iterator[tuple[str, Any, Any]]:
    """The name, type and row of each parameter of each command."""
    for command in of.registered_commands:
        assert command.callback is not None
        types = get_type_hints(command.callback)
        for name, each in inspect.signature(command.callback).parameters.items():
            if hasattr(each.default, "param_decls"):
                yield f"{path} {command.name or command.callback.__name__} {name}", types[name], each.default
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from rows(group.typer_instance, f"{path} {group.name}")


def fits(kind: Any, row: Any) -> bool:
    if row.default is None or row.default is ...:
        return (type(None) in get_args(kind)) == (row.default is None)
    return isinstance(row.default, kind)


def test_a_default_fits_its_parameter() -> None:
    every = list(rows(app, "regard"))
    assert len(every) > 300
    assert [name for name, kind, row in every if not fits(kind, row)] == []
    assert [name for name, _, row in every if not row.help.endswith((".", ")"))] == []


def commands(of: Any) -> Iterator[Any]:
    for each in of.commands.values():
        yield from commands(each) if hasattr(each, "commands") else [each]


def test_what_help_says_of_other_options_is_checked() -> None:
    """What begins as a rule is one, of options that the command has."""
    found = 0
    for command in commands(typer.main.get_command(app)):
        typed = set(typed_names(command.params).values())
        for help in (each.help or "" for each in command.params):
            if help.startswith(("With ", "Without ", "Instead of ")):
                rule = RULE.match(help)
                assert rule is not None, help
                assert typed.issuperset(re.findall(TYPED, rule[2])), help
                found += 1
    assert found > 30


def test_default_model_is_that_of_checkpoints() -> None:
    assert (_options.DEFAULT_MODEL, _options.DEFAULT_DECODER) == (DEFAULT_MODEL, DEFAULT_DECODER)


def limits(of: Any) -> dict[str, str]:
    """The limits of fields, or of options, in words."""
    stated = {name: limit_of(kind) for name, kind in get_type_hints(of, include_extras=True).items()}
    return {name: limit.words for name, limit in stated.items() if limit is not None}


@pytest.mark.parametrize(
    ("command", "kinds", "count"),
    [
        (generate.generate, (Sampling, Rules, Beams), 9),
        (translate.translate, (Rules, Beams), 5),
        (look.look, (Rules, Beams), 2),
        (embed.embed, (Request, Windows), 4),
        (heads.heads, (_Search,), 2),
        (serve.serve, (ServerSettings,), 5),
        (train._of_transformers("clm", ""), (Settings,), 3),
        (train._of_words("word2vec", ""), (WordSettings,), 2),
    ],
)
def test_an_option_has_the_limit_of_its_field(
    command: Callable[..., None], kinds: tuple[type, ...], count: int
) -> None:
    """Nothing else holds the two together: a field's module is too slow to be imported for --help."""
    of_fields = {name: words for kind in kinds for name, words in limits(kind).items()}
    shown = {name: words for name, words in limits(command).items() if name != "window"}  # Windows.size
    assert shown == {name: of_fields[name] for name in shown}
    assert len(shown) == count


def test_help_prints_limits() -> None:
    told = " ".join(CliRunner().invoke(app, ["generate", "--help"]).output.split())
    assert "Draw only from the N likeliest tokens. [at least 1]" in told
    assert "Draw from the likeliest that sum to P. [from 0 to 1]" in told
    assert told.count("[at least 1]") == 3
