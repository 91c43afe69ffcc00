"""What is wrong with a command line, in the words of its options."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_type_hints

import typer
from typer.core import TyperCommand

from regard.core.arguments import limit_of
from regard.core.errors import InputError

UsageError: Final[Any] = typer.BadParameter.__base__
"""What typer raises for a command line that it cannot read; typer names only this class below it."""

_ALIASES: Final = {
    "num_tokens": "tokens",
    "texts": "text",
    "count": "best",
    "selector": "word",
    "guess": "draft",
    "data.train": "data",
    "data.train_target": "target",
    "data.valid": "valid",
    "data.valid_target": "valid_target",
    "tokenizer.path": "tokenizer",
    "set": "changes",
}
"""Arguments of the Python below whose options have other names."""

_IN_WORDS: Final = (
    (r"(?:Value error, )?(.+) is not one of (.+?)\.?", r"must be one of \2; got \1"),
    (r"Input should be a valid integer.*", "must be a whole number"),
    (r"Input should be a (?:valid|finite) number.*", "must be a number"),
    (r"Input should be greater than or equal to (.+)", r"must be at least \1"),
    (r"(.+) is not a valid integer\.", r"must be a whole number; got \1"),
    (r"(.+) is not a valid float.*", r"must be a number; got \1"),
    (r"(.+) is not in the range x>=(.+)\.", r"must be at least \2; got \1"),
)
"""What typer says of a value (newer ones by pydantic, older ones by click), and what regard says."""


TYPED: Final = r"(?:--[a-z-]+|[A-Z]+)"
RULE: Final = re.compile(rf"(With|Without|Instead of) ({TYPED}(?:(?:, | or ){TYPED})*): ")
"""How the help of an option begins that says nothing without one of others, or that excludes them."""


class Command(TyperCommand):
    """A command whose errors name its options, not the arguments of the Python below.

    Its --help prints the limits that the annotations of its options state. A field has the same annotation.
    What the help of an option says of others, by `RULE`, is checked before the command runs.
    """

    def get_help(self, ctx: Any) -> str:
        """See `click.Command.get_help`."""
        kinds = get_type_hints(self.callback, include_extras=True)
        each: Any
        # Limits stand in annotations of the function: --help says them too.
        for each in self.params:
            if limit := limit_of(kinds.get(each.name)):
                stated = f"  [{limit.words}]"
                each.help = each.help.removesuffix(stated) + stated  # a process may ask for help twice
        return super().get_help(ctx)

    def invoke(self, ctx: Any) -> Any:
        """See `click.Command.invoke`."""
        self.check_together(ctx)
        try:
            return super().invoke(ctx)
        except InputError as error:
            # Errors of the Python below name its arguments.
            raise InputError(in_options(str(error), typed_names(self.params))) from error

    def check_together(self, ctx: Any) -> None:
        """Refuse options that were typed against what the help of one of them says."""
        names = typed_names(self.params)
        all_typed = {names[name] for name in names if ctx.get_parameter_source(name).name == "COMMANDLINE"}
        param: Any
        for param in self.params:
            rule = RULE.match(param.help or "")
            if rule is None or (typed := names[param.name]) not in all_typed:
                continue
            beside = [other for other in re.findall(TYPED, rule[2]) if other in all_typed]
            if rule[1] == "With" and not beside:
                raise InputError(f"{typed} goes with {rule[2]}.")
            if rule[1] != "With" and beside:
                raise InputError(f"give {beside[0]} or {typed}, not both.")


def typed_names(parameters: Sequence[Any]) -> dict[str, str]:
    """What is typed for each parameter: its long option, or what --help calls the argument."""
    return {
        each.name: max(each.opts, key=len) if each.opts[0][0] == "-" else each.metavar for each in parameters
    }


def in_options(message: str, names: Mapping[str, str]) -> str:
    """The message with options for arguments, and none of Python's words.

    Example:
        >>> in_options("target must be None: this model has no decoder.", {"target": "--target"})
        '--target must be left out: this model has no decoder.'
    """
    # An alias only where the command has the option.
    known = dict(names) | {ours: names[theirs] for ours, theirs in _ALIASES.items() if theirs in names}
    # The name that a message begins with, before its verb.
    begins = re.match(r"(\w+(?:\.\w+)*)(?=(?:\[.+?\])? (?:must|is|has|names)\b|: )", message)
    if begins is not None and begins[1] in known:
        message = known[begins[1]] + message[begins.end() :]
    return message.replace(" must be None", " must be left out")


def usage(error: Any) -> str:
    """What is wrong with a command line, in one line."""
    message: str = error.format_message()
    wrong = re.fullmatch(r"Invalid value for (.+?): (.+)", message)
    if wrong is not None:
        # The long one of "'--layer' / '-l'".
        name = max(re.findall(r"'(.+?)'", wrong[1]) or [wrong[1]], key=len)
        # The first that fits.
        for pattern, words in _IN_WORDS:
            match = re.fullmatch(pattern, wrong[2])
            if match is not None:
                return f"{name} {match.expand(words)}{_got(error)}."
        return f"{name}: {wrong[2]}"
    help_of = "" if error.ctx is None else f" See {error.ctx.command_path} --help."
    return f"{message}{'' if message.endswith(('.', '?')) else '.'}{help_of}"


def _got(error: Any) -> str:
    """What came, where pydantic says so."""
    errors: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    return f"; got {errors[0]['input']!r}" if errors and errors[0]["type"] != "value_error" else ""
