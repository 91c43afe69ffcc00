"""From the metadata of a GGUF file to a tokenizer of the `tokenizers` library.

What the format leaves open is read as llama.cpp reads it; what a family's own files are known to say, as they
say it: NFC, BERT's normaliser, masks that take the blank before them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import AddedToken, models, processors

from regard.core.errors import CheckpointError
from regard.core.wording import joined
from regard.text._cuts import CUTS
from regard.text._folder import Built
from regard.text._library import failing_as, surrogate, word_pieces
from regard.text._sentencepiece import BLANK, lay_out
from regard.text._special import Settings, SpecialIds

# The token types of llama.cpp, from 1 on.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = range(1, 6)

# How the keys of ids name the roles; the format spells the separator so.
_ROLES: Final = {"unk": "unknown", "sep": "seperator", "pad": "padding"} | {
    role: role for role in ("bos", "eos", "cls", "mask", "eot", "eom")
}
# Tokens that end a turn. Most files name one of them, as eos; llama.cpp knows the others by these names.
_ENDS: Final = (
    *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<EOT>"),
    *("<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>"),
)
# How architectures cut texts, in files that are older than the key that says it.
_FIRST_CUT: Final = {"gpt2": "gpt-2", "qwen2": "qwen2"}

# What converters write for a row of the table that has no piece.
_FILLER: Final = re.compile(r"\[PAD\d+\]")
_SENTINELS: Final = 100
_AGAIN: Final = "download the file again, or convert the model anew"


@dataclass(slots=True)
class _File:
    """What a file says of its tokens.

    Attributes:
        said: All of its metadata.
        pieces: The tokens by id, which each kind of tokenizer spells as its library does.
        types: What each is.
        roles: The ids of those with a role.
    """

    said: Settings
    pieces: list[str]
    types: npt.NDArray[np.int64]
    roles: dict[str, int]

    def flag(self, name: str, default: bool) -> bool:
        return self.said.flag(f"tokenizer.ggml.{name}", default)

    def role(self, *roles: str) -> int:
        """The id of the first of these roles that is there; one must be."""
        for role in roles:
            if role in self.roles:
                return self.roles[role]
        key = f"tokenizer.ggml.{_ROLES[roles[0]]}_token_id"
        raise CheckpointError(f"{self.said.folder} lacks {key}, without which no text is read: {_AGAIN}")

    def of_type(self, *types: int) -> list[int]:
        found: list[int] = np.flatnonzero(np.isin(self.types, types)).tolist()
        return found

    def special(self) -> set[int]:
        """The ids of tokens that are no text; what fills up may be any token."""
        # Padding may be any token (often eos): it does not make one special.
        named = (id for role, id in self.roles.items() if role != "pad")
        return {*self.of_type(_UNKNOWN, _CONTROL), *named}

    def vocabulary(self) -> dict[str, int]:
        """The ids of the pieces, but for those that only fill the table, and those without a text."""
        # Rows that converters filled up, and rows without any text.
        fill = {id for id in self.of_type(_UNUSED) if _FILLER.fullmatch(self.pieces[id])}
        fill |= {id for id, piece in enumerate(self.pieces) if not piece}
        ids = {piece: id for id, piece in enumerate(self.pieces) if id not in fill}
        # Two ids for one piece: the second would never be given.
        if len(ids) + len(fill) < len(self.pieces):
            twice = next(piece for id, piece in enumerate(self.pieces) if ids.get(piece, id) != id)
            raise CheckpointError(f"{self.said.folder} has the token {twice!r} twice: {_AGAIN}")
        return ids


def build_gguf(metadata: Mapping[str, object], path: Path) -> Built | None:
    """The tokenizer of a GGUF file, of which `metadata` has the keys and values; None where it has none.

    Raises:
        CheckpointError: It is of a kind that is not read, or damaged.
    """
    said = Settings(path, metadata, {})
    kind = said.text("tokenizer.ggml.model", "none")
    if kind in ("none", "no_vocab") and "tokenizer.ggml.tokens" not in metadata:
        return None
    if kind not in _KINDS:
        label = f"{kind!r} (tokenizer.ggml.model)"
        raise CheckpointError(f"{path} has a tokenizer of the kind {label}; regard reads {joined(_KINDS)}")
    pieces = _texts(said, "tokens")
    # Files without types have ordinary tokens only.
    types = np.full(len(pieces), _NORMAL)
    if "tokenizer.ggml.token_type" in metadata:
        types = _numbers(said, "token_type", len(pieces)).astype(np.int64)
    file = _File(said, pieces, types, _roles(said, len(pieces)))
    # From here on the `tokenizers` library speaks, in errors of its own.
    with failing_as(f"{path} has no usable tokenizer", f"; {_AGAIN}"):
        backend, frame = _KINDS[kind](file)
        _add(backend, file, takes_blank=kind in ("gpt2", "t5"))
        backend.post_processor = _template(backend, frame)
    # eos first: it ends every text; then what ends a turn, each once.
    ends = [file.roles[role] for role in ("eos", "eot", "eom") if role in file.roles]
    ends += [id for id in sorted(file.special()) if pieces[id] in _ENDS]
    return Built(
        path=path,
        backend=backend,
        target=None,
        special=SpecialIds(**{each.name: file.roles.get(each.name) for each in fields(SpecialIds)}),
        end_ids=tuple(dict.fromkeys(ends)),
        chat_template=said.text("tokenizer.chat_template", "") or None,
    )


def _roles(said: Settings, count: int) -> dict[str, int]:
    roles: dict[str, Any] = {
        role: said.fields.get(f"tokenizer.ggml.{name}_token_id") for role, name in _ROLES.items()
    }
    for role, id in roles.items():
        # True is an int in Python, and no id.
        if id is not None and not (type(id) is int and 0 <= id < count):
            key = f"tokenizer.ggml.{_ROLES[role]}_token_id"
            raise said.error(key, f"the id of one of the {count} tokens", id)
    return {role: id for role, id in roles.items() if id is not None}


def _texts(said: Settings, name: str) -> list[str]:
    texts: Any = said.fields.get(f"tokenizer.ggml.{name}")
    is_list = isinstance(texts, list) and texts and all(isinstance(each, str) for each in texts)
    if not is_list or surrogate("".join(texts)) is not None:
        raise said.error(f"tokenizer.ggml.{name}", "a list of texts in UTF-8", texts)
    return list(texts)


def _pairs(said: Settings) -> list[tuple[str, str]]:
    merges = _texts(said, "merges")
    # A merge is written as two pieces with a blank between them.
    pairs: Any = [tuple(each.split(" ")) for each in merges]
    if any(len(each) != 2 for each in pairs):
        raise said.error("tokenizer.ggml.merges", "a list of pairs of pieces", merges)
    return list(pairs)


def _numbers(said: Settings, name: str, count: int) -> npt.NDArray[np.float64]:
    stated = said.fields.get(f"tokenizer.ggml.{name}")
    try:
        numbers = np.asarray(stated, np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise said.error(f"tokenizer.ggml.{name}", f"a number for each of the {count} tokens", stated)
    return numbers


def _add(backend: tokenizers.Tokenizer, file: _File, *, takes_blank: bool) -> None:
    """Has the tokens found that stand for themselves wherever a text has them."""
    special, spelled = file.special(), file.said.fields["tokenizer.ggml.tokens"]
    ids = sorted({*special, *file.of_type(_USER_DEFINED)})
    tokens = [
        AddedToken(
            file.pieces[id],
            special=id in special,
            # One that is spelled anew is found in the text as the normaliser leaves it.
            normalized=id not in special and file.pieces[id] != spelled[id],
            lstrip=takes_blank and id == file.roles.get("mask"),
        )
        for id in ids
    ]
    backend.add_tokens(tokens)
    # Tokens that the vocabulary has keep their ids; one that moves would read another row of the table.
    for id, token in zip(ids, tokens, strict=True):
        if backend.token_to_id(token.content) != id:
            raise CheckpointError(
                f"{file.said.folder} has {token.content!r} at another id than {id}: {_AGAIN}"
            )


_Frame = tuple[list[int], list[int], list[int], int]
"""What stands before a text, behind it, then before a second one; and the second's type."""


def _frame(file: _File, *, begins: bool = False, ends: bool = False) -> _Frame:
    """As the file says; where it does not, texts begin with `bos` or end with `eos`."""
    before = [file.role("bos")] if file.flag("add_bos_token", begins) else []
    after = [file.role("eos")] if file.flag("add_eos_token", ends) else []
    if file.flag("add_sep_token", ends and bool(before)):
        # With a separator, two texts share one type.
        return before, after, [file.role("sep", "eos")], 0
    return (before, after, [], 0) if ends else (before, after, before, 1)


def _template(backend: tokenizers.Tokenizer, frame: _Frame) -> processors.TemplateProcessing:
    before, after, between, kind = frame
    # By ids: any text may be such a token.
    # "#5" cannot be mistaken: the library would look a token such as "$A" up by its text.
    single = [*(f"#{id}" for id in before), "$A", *(f"#{id}" for id in after)]
    second = [*(f"#{id}:{kind}" for id in between), f"$B:{kind}", *(f"#{id}:{kind}" for id in after)]
    ids = {*before, *after, *between}
    tokens: Any = [{"id": f"#{id}", "ids": [id], "tokens": [backend.id_to_token(id)]} for id in ids]
    return processors.TemplateProcessing(single=single, pair=[*single, *second], special_tokens=tokens)


def _byte_pairs(file: _File) -> tuple[tokenizers.Tokenizer, _Frame]:
    """GPT-2's kind: pairs of bytes, merged in the order of a list."""
    said = file.said
    name = said.text("tokenizer.ggml.pre", _FIRST_CUT.get(said.text("general.architecture", ""), ""))
    if name not in CUTS:
        fault = f"cuts texts in the way {name!r}" if name else "does not say how it cuts texts"
        raise CheckpointError(f"{said.folder} {fault}; regard knows {joined(CUTS, 40)} (tokenizer.ggml.pre)")
    cut, model = CUTS[name], models.BPE(vocab=file.vocabulary(), merges=_pairs(said))
    # Where expressions cut, nobody puts a blank before a text, whatever a file says.
    blank = not cut.steps and file.flag("add_space_prefix", False)
    return cut.around(model, prefix_space=blank), _frame(file, begins=cut.begins)


def _pieces(file: _File) -> tuple[tokenizers.Tokenizer, _Frame]:
    """SentencePiece's BPE: pairs of characters, merged in the order of the scores of what comes of them."""
    prefix = file.flag("add_space_prefix", True)
    for id in () if prefix else file.of_type(_USER_DEFINED):  # with a prefix they would get one too
        file.pieces[id] = file.pieces[id].replace(" ", BLANK)
    is_listed = "tokenizer.ggml.merges" in file.said.fields
    model = models.BPE(
        vocab=file.vocabulary(),
        merges=_pairs(file.said) if is_listed else _merges(file),
        unk_token=file.pieces[file.roles["unk"]] if "unk" in file.roles else None,
        fuse_unk=True,
        byte_fallback=True,
    )
    collapses = file.flag("remove_extra_whitespaces", False)
    return lay_out(model, charsmap=b"", collapses=collapses, prefix=prefix), _frame(file, begins=True)


def _merges(file: _File) -> list[tuple[str, str]]:
    """The pairs of pieces that make up a piece, the best piece first; of one piece, the longest left part."""
    # Normal pieces by falling scores; a stable sort keeps the order of ids among equals.
    scores, normal = _numbers(file.said, "scores", len(file.pieces)), np.array(file.of_type(_NORMAL), int)
    pieces = [file.pieces[id] for id in normal[np.argsort(-scores[normal], kind="stable")]]
    known = set(pieces)
    return [
        # Every way to cut a piece in two known ones is a merge.
        (left, right)
        for piece in pieces
        for at in range(len(piece) - 1, 0, -1)
        if (left := piece[:at]) in known and (right := piece[at:]) in known
    ]


def _word_pieces(file: _File) -> tuple[tokenizers.Tokenizer, _Frame]:
    """BERT's kind. The format marks the starts of words, where BERT marks what continues them."""
    special = file.special()
    for id, piece in enumerate(file.pieces):
        if id not in special:
            # The format: a blank sign starts a word. BERT: "##" continues one.
            file.pieces[id] = piece[1:] if piece[:1] == BLANK != piece else f"##{piece}"
    lowercases = file.flag("normalizer.lowercase", True)
    # A vocabulary with capitals is useless if texts are lowered: the file must say which.
    capitals = [each for each in file.pieces if each != each.lower() and each[:1] not in "[<"]
    if capitals and "tokenizer.ggml.normalizer.lowercase" not in file.said.fields:
        raise CheckpointError(
            f"{file.said.folder} has pieces with capitals ({joined(capitals, 3)}), but does not say whether "
            "texts are put into lower case (tokenizer.ggml.normalizer.lowercase): convert the model anew"
        )
    # The format has the roles of decoders here too; texts of this family have cls and sep.
    cls, sep = file.role("cls", "bos"), file.role("sep", "eos")
    file.roles = {role: file.roles[role] for role in ("unk", "pad", "mask") if role in file.roles}
    file.roles |= {"cls": cls, "sep": sep}
    # BERT strips accents where it lowers, unless told otherwise.
    strips = file.flag("normalizer.strip_accents", lowercases)
    unknown = file.pieces[file.role("unk")]
    backend = word_pieces(file.vocabulary(), unknown, lowercases=lowercases, strips=strips)
    return backend, ([cls], [sep], [], 1)


def _unigrams(file: _File) -> tuple[tokenizers.Tokenizer, _Frame]:
    """SentencePiece's unigrams: the pieces whose scores have the largest sum."""
    # Ids up to the last piece with a text; rows beyond it are filling.
    count = max(file.vocabulary().values(), default=-1) + 1
    is_t5 = file.said.text("general.architecture", "") in ("t5", "t5encoder")
    if is_t5 and len(file.pieces) >= count + _SENTINELS:
        # T5's marks of gaps, the last one first: a file has only their rows.
        rows = slice(count, count + _SENTINELS)
        file.pieces[rows] = [f"<extra_id_{number}>" for number in reversed(range(_SENTINELS))]
        file.types[rows] = _CONTROL
    scores = _numbers(file.said, "scores", len(file.pieces))
    # What is unknown scores less than the least piece: tokens that are no text do not count.
    scores = np.maximum(scores, scores[file.types == _NORMAL].min(initial=0))
    pairs = list(zip(file.pieces, scores[:count].tolist(), strict=False))
    charsmap: Any = file.said.fields.get("tokenizer.ggml.precompiled_charsmap")
    backend = lay_out(
        models.Unigram(pairs, file.role("unk"), byte_fallback=True),
        # Bytes may be stored as signed numbers.
        charsmap=bytes(each & 255 for each in np.array([] if charsmap is None else charsmap).tolist()),
        collapses=file.flag("remove_extra_whitespaces", False),
        prefix=file.flag("add_space_prefix", False),
    )
    return backend, _frame(file, ends=True)


_KINDS: Final[Mapping[str, Callable[[_File], tuple[tokenizers.Tokenizer, _Frame]]]] = {
    "gpt2": _byte_pairs,
    "llama": _pieces,
    "bert": _word_pieces,
    "t5": _unigrams,
}
"""By `tokenizer.ggml.model`."""
