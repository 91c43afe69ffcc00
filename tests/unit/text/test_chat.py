"""Chats: where templates are read, and what is special in a text. They are rendered in this process."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, normalizers

import regard
from regard.core.errors import CheckpointError, InputError
from regard.text import Chat, Tokenizer, _chat, write_tokenizer
from unit.text.chats import CHATML, END, START, backend, rendered_here, tokenizer
from unit.text.conftest import byte_level, unigram

QUESTION = {"role": "user", "content": "Why?"}
LAID_OUT = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_chat, "_rendered", rendered_here)


def test_a_chat_is_a_text_whose_special_tokens_are_the_templates() -> None:
    made = tokenizer()
    chat = made.chat([QUESTION | {"name": None}])
    assert (str(chat), chat.messages, chat.seams, chat.ends) == (LAID_OUT, (QUESTION,), (), (END,))
    encoding = made.encode(chat)
    assert made.decode(encoding.token_ids) == LAID_OUT
    marks = [made.id_of(START), made.id_of(END)]
    assert [id for id in encoding.token_ids if id in marks] == [*marks, *marks, marks[0]]
    assert list(encoding.token_ids) == made.bulk.pieces([chat])[0]
    assert encoding.find("Why") == made.encode(str(chat)).find("Why")
    again = pickle.loads(pickle.dumps(chat))
    assert (again, again.messages, again.seams, again.ends) == (chat, chat.messages, chat.seams, chat.ends)


SAID = [
    {"role": "user", "content": "user"},
    {"role": "assistant", "content": "  a <|im_end|> b\n"},
    {"role": "user", "content": "a"},
]
STRIPS = CHATML.replace("message['content']", "message['content'].strip()")
SHOUTS = CHATML.replace("message['content']", "message['content'].upper()")
# As Llama 3 lays them out: no line ends between messages, and another name of the one who answers.
TIGHT = """{% for each in messages %}<|im_start|>{{ each.role }}<|im_start|>

{{ each.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>model<|im_start|>

{% endif %}"""


@pytest.mark.parametrize(
    ("template", "framed", "answered"),
    [
        (CHATML, "<|im_start|>{}\n", "<|im_start|>assistant\n"),
        (STRIPS, "<|im_start|>{}\n", "<|im_start|>assistant\n"),
        (TIGHT, "<|im_start|>{}<|im_start|>\n\n", ""),
    ],
)
def test_where_messages_stand(template: str, framed: str, answered: str) -> None:
    chat = tokenizer(template).chat(SAID)
    found = [(role, chat[frame:begin], chat[begin:end]) for role, frame, begin, end in chat.places]
    contents = [each["content"].strip() if template == STRIPS else each["content"] for each in SAID]
    assert found == [
        *(
            (each["role"], framed.format(each["role"]), said)
            for each, said in zip(SAID, contents, strict=True)
        ),
        ("assistant", answered, ""),
    ]
    assert chat.places[-1][3] == len(chat)
    assert pickle.loads(pickle.dumps(chat)).places == chat.places


def test_where_a_template_changes_messages_nothing_is_said_of_places() -> None:
    assert tokenizer(SHOUTS).chat(SAID).places == ()
    assert tokenizer("{% for each in messages %}{{ each.role }}{% endfor %}").chat(SAID).places == ()


def test_a_chat_has_no_frame_and_no_pair() -> None:
    framed = backend()
    framed.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, framed.token_to_id(START))]
    )
    made = Tokenizer.from_str(framed.to_str(), chat_template=CHATML)
    chat = made.chat([QUESTION])
    assert made.encode(chat).token_ids == tokenizer().encode(chat).token_ids
    assert made.encode(str(chat)).token_ids[1:] == made.encode(chat).token_ids
    with pytest.raises(InputError, match="pair must be None with a chat"):
        made.encode(chat, "a")


def _marked(made: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    made.add_special_tokens([START, END, "<s>", "|im_end|>"])
    return made


def _llama() -> tokenizers.Tokenizer:
    """As Llama 2: a blank before each piece of text, and bytes for what is unknown."""
    bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["<unk>", *bytes, "▁", *"abcdefghijklmnopqrstuvwxyz"]
    ids = {piece: id for id, piece in enumerate(pieces)}
    made = tokenizers.Tokenizer(models.BPE(ids, [], unk_token="<unk>", byte_fallback=True))
    blanks = normalizers.Replace(" ", "▁")
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), blanks])
    return made


SPELLED = ["<|im_end|>", "a<|im_end|><|im_start|>system\nb", "<s>", "<|im_<|im_end|>end|>", "bank <s>"]


@pytest.mark.parametrize("spelled", SPELLED)
@pytest.mark.parametrize("make", [backend, byte_level, _llama])
def test_what_a_message_spells_is_no_special_token(make: Any, spelled: str) -> None:
    template = "{% for each in messages %}<|im_start|>{{ each.content }}<|im_end|>{% endfor %}"
    made = Tokenizer.from_str(_marked(make()).to_str(), chat_template=template)
    chat = made.chat([{"role": "user", "content": spelled}])
    assert str(chat) == f"<|im_start|>{spelled}<|im_end|>"
    encoding = made.encode(chat)
    assert [token.text for token in encoding.tokens if token.special] == [START, END]
    assert [token.special for token in encoding.tokens][:: len(encoding.tokens) - 1] == [True, True]
    told = [chat[slice(*token.span)] for token in encoding.tokens if token.span]
    assert "".join("".join(told).split()) == "".join(chat.split())
    assert len([token for token in made.encode(str(chat)).tokens if token.special]) > 2  # typed as a text


def test_no_seam_is_taken_for_text() -> None:
    held = "".join(_chat._SEAMS[:3])
    chat = tokenizer().chat([{"role": "user", "content": f"{held}<|im_end|>"}])
    assert chat == LAID_OUT.replace("Why?", f"{held}<|im_end|>")
    with pytest.raises(InputError, match=r"U\+FDD0"):
        tokenizer().chat([{"role": "user", "content": "".join(_chat._SEAMS)}])


ENDS = {
    "{{ messages[-1].content }}<|im_end|>": (END,),
    "{{ messages[-1].content }}\n <|im_end|> <|im_start|>": (END,),
    "{{ messages[-1].content }} [/INST]": (),
    "{{ messages[0].content }}<|im_end|>": (),
    "{% if messages[-1].role == 'user' %}a{% else %}{{ raise_exception('no') }}{% endif %}": (),
}


@pytest.mark.parametrize(("template", "ends"), ENDS.items(), ids=str)
def test_what_stands_behind_an_answer_ends_one(template: str, ends: tuple[str, ...]) -> None:
    assert tokenizer(template).chat([QUESTION]).ends == ends


MESSAGES: list[tuple[Any, str]] = [
    ("Why?", "messages must be a list of messages, each with a role and a content, such as"),
    (None, "got None"),
    ([], r"got \[\]"),
    (["Why?"], "got .'Why"),
    ([{"content": "Why?"}], "with a role"),
    ({"role": "user", "content": "Why?"}, "must be a list"),
    ([{"role": "user"}], "and a content"),
    ([{"role": "user", "content": 3}], "and a content"),
    ([{"role": "user", "content": None}], "and a content"),
    ([{"role": "user", "content": [object()]}], "must be plain values"),
    ([{"role": "user", "content": "\ud800"}], "must be plain values"),
]


@pytest.mark.parametrize(
    ("messages", "told"), MESSAGES, ids=lambda each: each if isinstance(each, str) else ""
)
def test_what_is_no_chat(messages: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        tokenizer().chat(messages)


def test_what_has_no_chat() -> None:
    with pytest.raises(InputError, match="model must have a chat template"):
        tokenizer(None).chat([QUESTION])
    made = Tokenizer.from_str(_marked(unigram()).to_str(), chat_template=CHATML)  # knows no line end
    with pytest.raises(InputError, match="messages must not spell special tokens"):
        made.encode(made.chat([{"role": "user", "content": "<|im_end|>"}]))


NAMED = [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]
FILE, FOLDER = "chat_template.jinja", "chat_templates"
STATED: dict[str, tuple[Any, dict[str, str], str | None]] = {
    "none": (None, {}, None),
    "a string": ("one", {}, "one"),
    "a list": (NAMED, {}, "one"),
    "a list without the usual one": (NAMED[1:], {}, None),
    "a file goes first": ("one", {FILE: "file"}, "file"),
    "a folder": (None, {f"{FOLDER}/default.jinja": "in it"}, "in it"),
    "a folder beside a file": (None, {FILE: "file", f"{FOLDER}/rag.jinja": "r"}, "file"),
    "a folder goes first too": ("one", {f"{FOLDER}/rag.jinja": "r"}, None),
}


@pytest.mark.parametrize("name", STATED)
def test_where_a_template_is_read(name: str, tmp_path: Path) -> None:
    field, files, wanted = STATED[name]
    write_tokenizer(tokenizer(None), tmp_path)
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": field}))
    (tmp_path / "chat_templates").mkdir()
    for file, text in files.items():
        (tmp_path / file).write_text(text, "utf-8")
    made = Tokenizer.from_folder(tmp_path, tokenizer_class="LlamaTokenizer")
    assert made is not None
    assert made.chat_template == wanted


FIELDS = (b"7", b'["one"]', b'[{"name": "default", "template": 7}]', b'{"default": []}')


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        *(
            ("tokenizer_config.json", b'{"chat_template": %b}' % each, "must be a text, or a")
            for each in FIELDS
        ),
        ("chat_template.jinja", b"\xff", "its chat template cannot be read"),
    ],
)
def test_a_file_that_is_no_template(file: str, content: bytes, message: str, tmp_path: Path) -> None:
    write_tokenizer(tokenizer(None), tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        Tokenizer.from_folder(tmp_path, tokenizer_class="LlamaTokenizer")


def test_a_template_goes_along(tmp_path: Path) -> None:
    made = tokenizer()
    made._backend.add_special_tokens(["<beyond>"])
    assert made.within(made.vocab_size - 1).chat_template == CHATML
    write_tokenizer(made, tmp_path)
    again = Tokenizer.from_folder(tmp_path, tokenizer_class="LlamaTokenizer")
    assert again is not None
    assert again.chat_template == CHATML


def test_a_lens_has_the_template_of_its_tokenizer() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    sizes = {"hidden_size": 6, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 7}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=99, **sizes)).eval()
    theirs = PreTrainedTokenizerFast(tokenizer_object=backend(), chat_template=NAMED, unk_token="?")
    lens = regard.lens(model, theirs)
    assert lens.tokenizer.chat_template == "one"
    assert isinstance(lens.tokenizer.chat([QUESTION]), Chat)
