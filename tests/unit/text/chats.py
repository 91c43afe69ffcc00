"""A tokenizer of single characters with ChatML's special tokens, and its template."""

import string
from typing import Any

import jinja2
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from regard.text import Tokenizer, _template

START, END = "<|im_start|>", "<|im_end|>"
CHARACTERS = string.printable[:97]  # to the blank, the tab and the line end

CHATML = """{% for message in messages %}
{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system
Be kind.<|im_end|>
' }}
{%- endif %}
{{- '<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant
' }}
{%- endif %}"""


def backend(*more: str) -> tokenizers.Tokenizer:
    """One token a character; others are read as "?"."""
    made = tokenizers.Tokenizer(
        models.WordLevel({character: id for id, character in enumerate(CHARACTERS)}, unk_token="?")
    )
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    made.add_special_tokens([START, END, *more])
    return made


def tokenizer(template: str | None = CHATML, **roles: str) -> Tokenizer:
    """Of these characters, with a template."""
    return Tokenizer.from_str(backend().to_str(), roles=roles, chat_template=template)


def rendered_here(template: str, *values: dict[str, Any]) -> list[dict[str, str]]:
    """As `_chat._rendered`, in this process."""
    told = []
    for each in values:
        try:
            told.append({"text": _template.rendered(template, each)})
        except jinja2.TemplateError as error:
            told.append({"refused" if type(error) is jinja2.TemplateError else "failed": str(error)})
    return told
