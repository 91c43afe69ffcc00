"""A tokenizer as plain values, for the page's JavaScript: `views/static/live/tokenizer.js` reads them.

What is written: WordPiece after BERT's normaliser, and byte pairs, of bytes (GPT-2, Qwen) or of
SentencePiece's characters (Llama, Mistral, Gemma). Every other component is refused by name: a page that gave
other tokens than Python would show another model.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tokenizers

from regard.core.errors import InputError
from regard.text._code_points import (
    Table,
    composed,
    decomposed,
    folds,
    lowered,
    nonspacing,
    of_bert,
    of_words,
    ranks,
)
from regard.text._cuts import GPT2
from regard.text._cutting import cuts
from regard.text._sentencepiece import BLANK, Renumbered
from regard.text._words import SEGMENT, SIGNS

_Json = Mapping[str, Any]

# The settings of a BPE that change what it does, each with the values that the page has.
_PLAIN: Final[Mapping[str, tuple[Any, ...]]] = {
    "dropout": (None, 0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
}

# The steps of JavaScript for each component: a blank becomes the sign, a sign is put in front.
_SIGNED: Final = {"type": "Replace", "of": ord(" "), "by": ord(BLANK)}
_FRONT: Final = {"type": "Prepend", "sign": ord(BLANK)}
_SPACED: Final = {"type": "Metaspace", "replacement": BLANK, "split": False}
_STEPS: Final[Sequence[tuple[_Json, Sequence[_Json]]]] = (
    ({"type": "NFC"}, [{"type": "NFC"}]),
    ({"type": "Prepend", "prepend": BLANK}, [_FRONT | {"when": "always"}]),
    ({"type": "Replace", "pattern": {"String": " "}, "content": BLANK}, [_SIGNED]),
    (_SPACED | {"prepend_scheme": "always"}, [_SIGNED, _FRONT | {"when": "missing"}]),
    (_SPACED | {"prepend_scheme": "first"}, [_SIGNED, _FRONT | {"when": "first"}]),
    (_SPACED | {"prepend_scheme": "never"}, [_SIGNED]),
)
"""What normalizers and pre-tokenizers do to a text before it is cut: see static/live/steps.js."""


def portable(
    backend: tokenizers.Tokenizer | Renumbered, source: str, *, rows: int | None, limit: int | None
) -> dict[str, Any]:
    """All that gives the tokens of a text, as values that JSON can hold, for a table of so many rows.

    A component that the page does not have is an InputError, which names it.
    """
    if isinstance(backend, Renumbered):
        raise _refused(source, "its ids are renumbered, as Marian's")
    # As the library writes it to a file: all its settings, also defaults.
    parts: dict[str, Any] = json.loads(backend.to_str())
    kind = parts["model"]["type"]
    maker = {"WordPiece": _word_piece, "BPE": _byte_pairs}.get(kind)
    if maker is None:
        # The file that it writes has only one of several pieces with an id, so the vocabulary is asked
        # for.
        raise _refused(source, f"its model is {kind}")
    parts["model"]["vocab"] = backend.get_vocab(with_added_tokens=False)
    pieces = _pieces(source, parts["model"]["vocab"])
    # Properties of code points that words, folding and the model need.
    table = Table()
    words = dict(of_words())
    table.number("sign", words.pop("sign"))
    table.flags(words)
    added = _added(backend, source, parts)
    special = [each["content"] for each in added if each["special"]]
    table.map("folds", folds(special))
    model = {"type": kind, "pieces": pieces} | maker(source, parts, table)
    return {
        "model": model,
        "added": added,
        "template": _template(backend, source, parts["post_processor"]),
        "signs": "".join(SIGNS),
        "segment": SEGMENT,
        "rows": rows,
        "limit": limit,
        "characters": table.facts(),
    }


def _refused(source: str, what: str) -> InputError:
    return InputError(
        f"{source} cannot be written into a page: {what}. A live page has the tokenizers of BERT (WordPiece "
        "after BertNormalizer), of GPT-2, SmolLM, Llama 3 and Qwen (BPE of bytes), and of Llama 2, Mistral "
        "and Gemma (BPE with byte_fallback); `regard look` without --live draws any model."
    )


def _check(source: str, name: str, part: _Json | None, wanted: str) -> None:
    """Refuse a part of another type."""
    found = None if part is None else part["type"]
    if found != wanted:
        raise _refused(source, f"its {name} is {found or 'missing'}, not {wanted}")


def _pieces(source: str, vocabulary: Mapping[str, int]) -> list[str | None]:
    """The pieces by id, None where there is none."""
    pieces: list[str | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
    for piece, id in vocabulary.items():
        if pieces[id] is not None:
            raise _refused(source, f"its pieces {pieces[id]!r} and {piece!r} share the id {id}")
        pieces[id] = piece
    return pieces


def _word_piece(source: str, parts: _Json, table: Table) -> dict[str, Any]:
    model, normalizer = parts["model"], parts["normalizer"]
    _check(source, "normalizer", normalizer, "BertNormalizer")
    _check(source, "pre-tokenizer", parts["pre_tokenizer"], "BertPreTokenizer")
    if model["unk_token"] not in model["vocab"]:
        raise _refused(source, f"its vocabulary lacks {model['unk_token']!r}, the token of unknown words")
    # null means: as lower case is.
    strip = normalizer["strip_accents"]
    steps = {
        "clean": normalizer["clean_text"],
        "chinese": normalizer["handle_chinese_chars"],
        "strip": normalizer["lowercase"] if strip is None else strip,
        "lower": normalizer["lowercase"],
    }
    # What BERT's own steps ask of each character.
    table.flags(of_bert())
    if steps["strip"]:
        _take_apart(table)
        table.flags({"nonspacing": nonspacing()})
    if steps["lower"]:
        table.map("lowered", lowered())
    return {
        "unknown": model["vocab"][model["unk_token"]],
        "prefix": model["continuing_subword_prefix"],
        "longest": model["max_input_chars_per_word"],
        "steps": steps,
    }


_ALPHABET = "".join(map(chr, range(0x21, 0x7F))) + "Ġ"
"""What stands for the bytes of plain text."""


def _byte_pairs(source: str, parts: _Json, table: Table) -> dict[str, Any]:
    model, before = parts["model"], _flat(parts["pre_tokenizer"], "pretokenizers")
    for setting, plain in _PLAIN.items():
        if model[setting] not in plain:
            raise _refused(source, f"its model has {setting} = {model[setting]!r}")
    # The bytes of the alphabet, or SentencePiece's <0xNN>: without either a text could have no tokens.
    of_bytes = bool(before) and before[-1]["type"] == "ByteLevel"
    if not (of_bytes or model["byte_fallback"]):
        raise _refused(source, "its model has byte_fallback = False, and its pre-tokenizer no ByteLevel")
    # A page refuses texts with bytes that no piece spells; a vocabulary without common ones is another kind.
    wanted = _ALPHABET if of_bytes else [f"<0x{byte:02X}>" for byte in range(256)]
    missing = sorted(set(wanted) - model["vocab"].keys())
    if missing:
        raise _refused(source, f"its vocabulary lacks the bytes {' '.join(missing)}")
    normalizer = [
        step
        for each in _flat(parts["normalizer"], "normalizers")
        for step in _steps(source, "normalizer", each)
    ]
    # NFC needs marks in order, and what two characters make.
    if {"type": "NFC"} in normalizer:
        _take_apart(table)
        table.map("composed", composed())
    steps: list[_Json] = []
    cutting = []
    if of_bytes:
        # The last step maps bytes to letters; those before it cut.
        *cutting, last = before
        if last["add_prefix_space"] and cutting:
            raise _refused(source, "its pre-tokenizer puts a blank before every part")
        if last["add_prefix_space"]:
            steps.append({"type": "Prepend", "sign": ord(" "), "when": "missing"})
        if last["use_regex"]:
            cutting.append(_split({"Regex": GPT2}, "Isolated"))
    # Gemma's cuts at blanks, of which its normalizer has left none.
    elif before != [_split({"String": " "}, "MergedWithPrevious")] or _SIGNED not in normalizer:
        steps = [step for each in before for step in _steps(source, "pre-tokenizer", each)]
    try:
        # Expressions over signs, which any engine reads alike.
        signs, expressions = cuts(cutting)
    except InputError as error:
        raise _refused(source, str(error)) from None
    table.number("cut", signs)
    pairs = [each.split(" ") if isinstance(each, str) else each for each in model["merges"]]
    return {
        # Merges as ids: two for each, in the order of the file.
        "merges": [model["vocab"][piece] for pair in pairs for piece in pair],
        "normalizer": normalizer,
        "steps": steps,
        "cuts": expressions,
        "spelling": "bytes" if of_bytes else "characters",
        "whole": model["ignore_merges"],
    }


def _split(pattern: _Json, behavior: str) -> _Json:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def _flat(part: _Json | None, name: str) -> list[_Json]:
    """The components of a sequence of sequences."""
    if part is None or part["type"] != "Sequence":
        return [] if part is None else [part]
    return [each for inner in part[name] for each in _flat(inner, name)]


def _steps(source: str, name: str, part: _Json) -> Sequence[_Json]:
    for known, steps in _STEPS:
        if part == known:
            return steps
    raise _refused(source, f"its {name} has {dict(part)}")


def _take_apart(table: Table) -> None:
    table.number("rank", ranks())
    table.map("decomposed", decomposed())


def _added(backend: tokenizers.Tokenizer, source: str, parts: _Json) -> list[dict[str, Any]]:
    """The tokens that are found in a text before anything else; `find` is what is looked for."""
    normalizer = backend.normalizer
    added = []
    for token in parts["added_tokens"]:
        content = token["content"]
        if token["single_word"]:
            raise _refused(source, f"its added token {content!r} is to be found as a single word")
        # A token that is found after normalisation is looked for in its normalised form.
        find = content
        if token["normalized"] and normalizer is not None:
            find = normalizer.normalize_str(content)
        if not find:
            raise _refused(source, f"nothing is left of its added token {content!r} after the normalizer")
        kept = {name: token[name] for name in ("id", "content", "special", "normalized", "lstrip", "rstrip")}
        added.append(kept | {"find": find, "folded": content.casefold()})
    # The page finds tokens by what they look like: two alike could not be told apart.
    looked_for = [(token["normalized"], token["find"]) for token in added]
    for index, token in enumerate(added):
        if looked_for.index(looked_for[index]) != index:
            raise _refused(source, f"its added token {token['content']!r} looks like another in a text")
    return added


_Around = list[tuple[int | str, int]]
"""What stands around texts, in order: an id, or "A" or "B" for a text, each with its type."""


def _template(backend: tokenizers.Tokenizer, source: str, processor: _Json | None) -> dict[str, _Around]:
    """What is put around one text, and around two."""

    def known(names: Sequence[str], ids: Sequence[int]) -> Sequence[int]:
        if [backend.id_to_token(id) for id in ids] != [*names]:
            raise _refused(
                source, f"its template names {' '.join(names)}, which are not the tokens of its ids"
            )
        return ids

    def filled(template: Sequence[_Json], tokens: _Json) -> _Around:
        around: _Around = []
        for part in template:
            # A part of a template is an object with one key, its kind.
            [(kind, said)] = part.items()
            if kind == "Sequence":
                around.append((said["id"], said["type_id"]))
            else:
                token = tokens[said["id"]]
                around += [(id, said["type_id"]) for id in known(token["tokens"], token["ids"])]
        return around

    kind = None if processor is None else processor["type"]
    inner = [each for each in (processor or {}).get("processors", ()) if each["type"] != "ByteLevel"]
    # That is about spans alone, and regard has its own rule there.
    if processor is None or kind == "ByteLevel":
        single: _Around = [("A", 0)]
        pair: _Around = [("A", 0), ("B", 1)]
    elif kind == "Sequence" and len(inner) < 2:
        return _template(backend, source, *(inner or [None]))
    elif kind in ("BertProcessing", "RobertaProcessing"):
        [cls], [sep] = (known([name], [id]) for name, id in (processor["cls"], processor["sep"]))
        single = [(cls, 0), ("A", 0), (sep, 0)]
        pair = [*single, ("B", 1), (sep, 1)]
        if kind == "RobertaProcessing":
            pair = [*single, (sep, 0), ("B", 0), (sep, 0)]
    elif kind == "TemplateProcessing":
        single, pair = (filled(processor[each], processor["special_tokens"]) for each in ("single", "pair"))
    else:
        raise _refused(source, f"its post-processor is {kind}")
    # Each text once, and in order: the page puts nothing else together.
    for around, texts in ((single, ["A"]), (pair, ["A", "B"])):
        if [part for part, _ in around if part in ("A", "B")] != texts:
            raise _refused(source, "its template does not give every text once and in order")
    return {"single": single, "pair": pair}
