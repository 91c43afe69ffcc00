"""A chat template at work, in a process of its own, which `regard.text._chat` starts and ends.

jinja2's sandbox keeps a template from files and from Python's insides, but bounds neither time nor memory,
and nothing within a process can stop `"x" * 10**10`.
"""

import contextlib
import json
import sys
from datetime import datetime
from typing import Any

MOST_CHARACTERS = 2**22
MOST_BYTES = 2**29  # of memory


def rendered(template: str, values: dict[str, Any]) -> str:
    """The text that a template makes of values, as `apply_chat_template` of transformers does."""
    from jinja2 import TemplateError, ext, nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(ext.Extension):
        """`{% generation %}`, which marks answers for training: what is in it stays."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            # The tag's line is kept for error messages.
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), True), lineno=line)

    def raise_exception(message: Any) -> None:
        raise TemplateError(message)

    def tojson(
        x: Any, ensure_ascii: Any = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
    ) -> str:
        how: dict[str, Any] = {"ensure_ascii": ensure_ascii, "indent": indent, "separators": separators}
        return json.dumps(x, sort_keys=sort_keys, **how)

    # The settings of transformers, whose templates rely on them.
    world = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    # transformers' own tojson leaves characters as they are and does not escape for HTML.
    world.filters["tojson"] = tojson
    world.globals["raise_exception"] = raise_exception
    world.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    text = ""
    # Piece by piece, so that an endless template is stopped.
    for piece in world.from_string(template).generate(tools=None, documents=None, **values):
        text += piece
        if len(text) > MOST_CHARACTERS:
            raise ValueError(f"it gives more than {MOST_CHARACTERS:,} characters")
    return text


def _main() -> None:
    asked = json.load(sys.stdin)
    sys.path[:] = asked["path"]  # the packages of the process that asks
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        # Memory that the process may have at all: a template cannot take the machine's.
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    answers = []
    for values in asked["values"]:
        try:
            answers.append({"text": rendered(asked["template"], values)})
        except MemoryError:
            answers.append({"failed": f"it takes more than {MOST_BYTES >> 20} MiB"})
        except Exception as error:
            # What raise_exception raises speaks of the messages; anything else is the template's fault.
            kind = "refused" if type(error).__name__ == "TemplateError" else "failed"
            answers.append({kind: str(error)[:300] or type(error).__name__})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    _main()
