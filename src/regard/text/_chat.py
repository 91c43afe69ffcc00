"""Messages as the text that a chat model reads: its template, and which tokens of the text are special."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from regard.core.errors import CheckpointError, InputError
from regard.core.files import plain_file, read_object
from regard.core.tokenizer_files import SETTINGS, TEMPLATE, TEMPLATES
from regard.core.wording import printable, reason
from regard.text import _template
from regard.text._special import SpecialIds

SECONDS: Final = 10.0
"""The longest that a template may take."""

_SUCH_AS: Final = 'such as [{"role": "user", "content": "Why is the sky blue?"}]'
# Words that no template has, to see what a template puts behind an answer.
_ANSWER: Final = "An answer, 7e1d."
_CONTENT: Final = "Content {}, 7e1d."
# Noncharacters, which no text should hold: one of them marks a seam while the template works.
_SEAMS: Final = [chr(code) for code in range(0xFDD0, 0xFDF0)]


class Chat(str):
    """A chat as the text that a model reads. It can stand for any text: to write, to stream, to trace.

    Made by `Tokenizer.chat`. The special tokens of its template are read as such. Where a message spells one,
    its characters are read as characters.

    Attributes:
        messages: the messages.
        seams: places inside special tokens that a message spells: no token goes on there.
        ends: the special token that the template puts behind an answer, which ends it; () for none.
        places: of each message, and of the answer to come: its role, and the places at which what introduces
            it begins, its content begins, and its content ends; () where the template changes a content.
    """

    messages: tuple[dict[str, Any], ...]
    seams: tuple[int, ...]
    ends: tuple[str, ...]
    places: tuple[tuple[str, int, int, int], ...]

    def __new__(
        cls,
        text: str,
        messages: Iterable[Any],
        seams: Iterable[int],
        ends: Iterable[str],
        places: Iterable[tuple[str, int, int, int]] = (),
    ) -> Self:
        chat = super().__new__(cls, text)
        chat.messages, chat.seams, chat.ends = tuple(messages), tuple(seams), tuple(ends)
        chat.places = tuple(places)
        return chat

    # For pickle: a str is made anew, with its attributes.
    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), self.messages, self.seams, self.ends, self.places


class Chats:
    """What a `Tokenizer` makes of messages."""

    __slots__ = ()

    if TYPE_CHECKING:
        _chat_template: str | None
        _special: dict[int, str]
        _special_ids: SpecialIds

        def piece_of(self, id: int) -> str | None: ...

    @property
    def chat_template(self) -> str | None:
        """How messages become a text, in the language of jinja2; None where the file does not say."""
        return self._chat_template

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> Chat:
        """Messages as the text that the model reads, up to where its answer begins.

        As `apply_chat_template(messages, add_generation_prompt=True)` of transformers, but for special tokens
        that a message spells, such as "<|im_end|>": they are read as characters. Messages are dicts with a
        `role`, such as "user", and `content`. The template has a process, 10 seconds and 512 MiB.

        Raises:
            InputError: There is no template; or it refuses the messages.
            CheckpointError: The template is broken, or takes too much.

        Example:
            >>> from tokenizers import Tokenizer as Backend, models
            >>> from regard.text import Tokenizer
            >>> backend = Backend(models.WordLevel({"?": 0, "<user>": 1, "<end>": 2, "hello": 3}, "?"))
            >>> _ = backend.add_special_tokens(["<user>", "<end>"])
            >>> template = "{% for each in messages %}<{{ each.role }}>{{ each.content }}<end>{% endfor %}"
            >>> tokenizer = Tokenizer.from_str(backend.to_str(), chat_template=template)
            >>> chat = tokenizer.chat([{"role": "user", "content": "hello"}])
            >>> str(chat), tokenizer.encode(chat).token_ids, chat.ends
            ('<user>hello<end>', (1, 3, 2), ('<end>',))
        """
        if self._chat_template is None:
            raise InputError(
                "model must have a chat template, to answer messages; this one can only go on with a text."
            )
        ids = asdict(self._special_ids)
        # Templates name the tokens themselves, as `bos_token`.
        roles = {f"{role}_token": self.piece_of(id) for role, id in ids.items() if id is not None}
        return _laid_out(self._chat_template, messages, roles, self._special.values())


def read_template(folder: Path) -> str | None:
    """A folder's chat template. As in transformers, files of templates go before `tokenizer_config.json`."""
    # Only files that are there; a folder of templates holds several by name.
    files = {"default": folder / TEMPLATE}
    files |= {each.stem: each for each in (folder / TEMPLATES).glob("*.jinja")}
    settings = folder / SETTINGS[0]
    try:
        named: Any = {n: plain_file(each).read_text("utf-8") for n, each in files.items() if each.exists()}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder}: its chat template cannot be read ({reason(error)})") from error
    # Older models keep the template among the settings.
    if not named and settings.is_file():
        named = read_object(settings).get("chat_template")
    return template_of(named, str(settings))


def template_of(stated: Any, where: str) -> str | None:
    """The template that is stated; of several with names, in a dict or a list, that called "default"."""
    if isinstance(stated, list) and all(isinstance(each, dict) for each in stated):
        stated = {each.get("name"): each.get("template") for each in stated}
    template = stated.get("default") if isinstance(stated, dict) else stated
    if not isinstance(template, str | None):
        raise CheckpointError(f"{where}: chat_template must be a text, or a list of named ones")
    return template


def _laid_out(template: str, messages: Any, roles: Mapping[str, str | None], special: Iterable[str]) -> Chat:
    """Messages as a template lays them out, up to where the answer begins.

    `roles` are the special tokens that the template may name, as `bos_token`; `special` has all.
    """
    # Longest first: a token that begins another must not hide it.
    plain, spelled = _checked(messages), sorted(special, key=len, reverse=True)
    seam, marked = _marked(plain, spelled)
    # A second rendering with an answer shows what the template puts behind it.
    answered = [*plain, {"role": "assistant", "content": _ANSWER}]
    # A third one with contents that are known shows where contents begin and end.
    bare = [{**each, "content": _CONTENT.format(place)} for place, each in enumerate(plain)]
    # All three in one process, which costs a start of Python.
    prompt, whole, frames = _rendered(
        template,
        {"messages": marked, "add_generation_prompt": True, **roles},
        {"messages": answered, "add_generation_prompt": False, **roles},
        {"messages": bare, "add_generation_prompt": True, **roles},
    )
    # One of text, refused, failed.
    for kind, output in prompt.items():
        output = printable(" ".join(output.split()))
        if kind == "refused":
            raise InputError(f"messages must be as the model's chat template wants them: {output}")
        if kind == "failed" or not output:
            why = output or "it makes no text of them"
            raise CheckpointError(f"the model's chat template fails on these messages: {why}")
    # Between seams the text is read by itself, so that no token reaches over one.
    parts = prompt["text"].split(seam)
    # Where the seams were, in the text without them.
    places = [sum(map(len, parts[:count])) for count in range(1, len(parts))]
    # The template's end of an answer: the first special token behind the words that were put in.
    _, _, behind = whole.get("text", "").rpartition(_ANSWER)
    end = [each for each in spelled if behind.lstrip().startswith(each)][:1]
    text = "".join(parts)
    return Chat(text, plain, places, end, _placed(text, frames.get("text", ""), plain, spelled))


def _placed(
    text: str, frames: str, messages: Sequence[dict[str, Any]], special: Sequence[str]
) -> list[tuple[str, int, int, int]]:
    """Where the messages stand in a text; `frames` is what the template makes of other contents."""
    places, at = [], 0
    # The last place is that of the answer to come, which has no content yet.
    for place, message in enumerate([*messages, {"role": "assistant", "content": ""}]):
        frame, _, frames = frames.partition(_CONTENT.format(place))
        begin, content = at + len(frame), message.get("content")
        # The template has changed something: places would be guesses.
        if not isinstance(content, str) or not text.startswith(frame, at):
            return []
        # What introduces a message begins with its role, and the special token before that.
        head = begin if (named := frame.rfind(message["role"])) < 0 else at + named
        before = next((each for each in special if text.endswith(each, at, head)), "")
        # Some templates strip contents.
        whole = content if text.startswith(content, begin) else content.strip()
        at = begin + len(whole)
        if text[begin:at] != whole:
            return []
        places.append((message["role"], head - len(before), begin, at))
    return places if at == len(text) else []


def _is_message(value: Any) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        return False
    content = value.get("content")
    # Parts of a content are a list; a call of a tool has other fields in place of a content.
    return isinstance(content, str | list) or (content is None and len(value) > 1 + ("content" in value))


def _checked(messages: Any) -> list[dict[str, Any]]:
    """The messages as plain values; what is None counts as left out."""
    listed = [] if isinstance(messages, str) or not isinstance(messages, Iterable) else list(messages)
    if not listed or not all(map(_is_message, listed)):
        got = printable(repr(messages)[:80])
        wanted = f"a list of messages, each with a role and a content, {_SUCH_AS}"
        raise InputError(f"messages must be {wanted}; got {got}.")
    try:
        # As transformers' own data, None stands for a field that is not there.
        plain = [{name: each for name, each in message.items() if each is not None} for message in listed]
        # Through JSON and back: what the template's process will get.
        said = json.dumps(plain, ensure_ascii=False).encode()
    except (RecursionError, TypeError, ValueError) as error:
        raise InputError(f"messages must be plain values, as of JSON: {reason(error)}.") from error
    return list(json.loads(said))


def _marked(messages: list[dict[str, Any]], special: Sequence[str]) -> tuple[str, Any]:
    """The messages with a seam inside every special token that they spell, and what stands for a seam."""
    said = json.dumps(messages, ensure_ascii=False)
    seam = next((each for each in _SEAMS if each not in said), None)
    if seam is None:
        raise InputError("messages must be text; they hold all of U+FDD0 to U+FDEF, which are no characters.")
    # Any special token begins here; without any, a pattern that never fits.
    begins = re.compile(f"(?={'|'.join(map(re.escape, special)) or '(?!)'})(.)", re.DOTALL)

    def mark(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: mark(each) for name, each in value.items()}
        if isinstance(value, list):
            return list(map(mark, value))
        # The seam goes behind the token's first character, so that it is not found as one.
        return begins.sub(rf"\1{seam}", value) if isinstance(value, str) else value

    return seam, mark(messages)


def _rendered(template: str, *values: dict[str, Any]) -> list[dict[str, str]]:
    """What the template makes of each of the values, in a process that ends when its time is over."""
    # Python's own start-up is left out: the process gets the path of this one.
    # -I and -S: without the user's folder and without site-packages, which take time to look through.
    command = [sys.executable, "-I", "-S", _template.__file__]
    asked = json.dumps({"template": template, "values": values, "path": [*filter(None, sys.path)]})
    # The process dies by its own limits, or here by the clock.
    try:
        done = subprocess.run(command, input=asked.encode(), capture_output=True, timeout=SECONDS)
        outputs: list[dict[str, str]] = json.loads(done.stdout)
        return outputs
    except subprocess.TimeoutExpired:
        why = f"it takes more than {SECONDS:g} seconds"
    except (OSError, ValueError):
        why = "its process did not start, or was ended for want of memory"
    return [{"failed": why}] * len(values)
