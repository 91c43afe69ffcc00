"""A tokenizer as plain values, for the page's JavaScript: `views/static/live/tokenizer.js` reads them.

Only what BERT, DistilBERT, RoBERTa, GPT-2 and SmolLM are made of is written: WordPiece after BERT's
normaliser, and pairs of bytes, before which digits may be set apart. Every other component is refused by
name: a page that gave other tokens than Python would show another model.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import tokenizers

from regard.core.errors import InputError
from regard.text._code_points import (
    Table,
    decomposed,
    digits,
    folds,
    lowered,
    nonspacing,
    of_bert,
    of_byte_level,
    of_words,
    ranks,
)
from regard.text._sentencepiece import Renumbered
from regard.text._words import SEGMENT, SIGNS

_Json = Mapping[str, Any]

_Parts = Mapping[str, str | None]

_WORD_PIECE: Final[_Parts] = {
    "model": "WordPiece",
    "normalizer": "BertNormalizer",
    "pre_tokenizer": "BertPreTokenizer",
}
_BYTE_PAIRS: Final[_Parts] = {"model": "BPE", "normalizer": None, "pre_tokenizer": "ByteLevel"}
# The settings that change what a component does, each with the values that the page has.
_PLAIN: Final[Mapping[str, Mapping[str, tuple[Any, ...]]]] = {
    "BPE": {
        "dropout": (None, 0),
        "continuing_subword_prefix": (None, ""),
        "end_of_word_suffix": (None, ""),
        "ignore_merges": (False,),
    },
    "ByteLevel": {"use_regex": (True,)},
    "Digits": {"individual_digits": (True,)},
}


def portable(
    backend: tokenizers.Tokenizer | Renumbered, source: str, *, rows: int | None, limit: int | None
) -> dict[str, Any]:
    """All that gives the tokens of a text, as values that JSON can hold, for a table of so many rows.

    A component that the page does not have is an InputError, which names it.
    """
    if isinstance(backend, Renumbered):
        raise _refused(source, "its ids are renumbered, as Marian's")
    parts: dict[str, Any] = json.loads(backend.to_str())
    kind = parts["model"]["type"]
    wanted = {"WordPiece": _WORD_PIECE, "BPE": _BYTE_PAIRS}.get(kind)
    if wanted is None:
        raise _refused(source, f"its model is {kind}")
    # What cuts a text first may set digits apart.
    before = parts["pre_tokenizer"]
    cuts = before["pretokenizers"] if before and before["type"] == "Sequence" else [before]
    if kind == "BPE" and len(cuts) == 2:
        _check(source, "pre_tokenizer", cuts[0], "Digits")
        if cuts[1].get("add_prefix_space"):
            raise _refused(source, "its pre-tokenizer puts a blank before every digit")
        parts["pre_tokenizer"] = cuts[1]
    for name, type_name in wanted.items():
        _check(source, name, parts[name], type_name)
    # The file that it writes has only one of several pieces with an id.
    parts["model"]["vocab"] = backend.get_vocab(with_added_tokens=False)
    pieces = _pieces(source, parts["model"]["vocab"])
    table = Table()
    words = dict(of_words())
    table.number("sign", words.pop("sign"))
    table.flags(words)
    maker = _word_piece if kind == "WordPiece" else _byte_pairs
    added = _added(backend, source, parts)
    special = [each["content"] for each in added if each["special"]]
    table.map("folds", folds(special))
    model = {"type": kind, "pieces": pieces} | maker(source, parts, table)
    if parts["pre_tokenizer"] is not before:
        table.flags({"digit": digits()})
        model["digits"] = True
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
        "after BertNormalizer), GPT-2, RoBERTa and SmolLM (BPE after ByteLevel, or after single digits); "
        "`regard look` without --live draws any model."
    )


def _check(source: str, name: str, part: _Json | None, wanted: str | None) -> None:
    """Refuse a part of another type, or with a setting that the page does not have."""
    said = name.replace("_", "-")
    found = None if part is None else part["type"]
    if found != wanted:
        raise _refused(source, f"its {said} is {found or 'missing'}, not {wanted or 'nothing'}")
    for setting, plain in _PLAIN.get(found or "", {}).items():
        if part is not None and part.get(setting, plain[0]) not in plain:
            raise _refused(source, f"its {said} has {setting} = {part[setting]!r}")


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
    if model["unk_token"] not in model["vocab"]:
        raise _refused(source, f"its vocabulary lacks {model['unk_token']!r}, the token of unknown words")
    strip = normalizer["strip_accents"]
    steps = {
        "clean": normalizer["clean_text"],
        "chinese": normalizer["handle_chinese_chars"],
        "strip": normalizer["lowercase"] if strip is None else strip,
        "lower": normalizer["lowercase"],
    }
    table.flags(of_bert())
    if steps["strip"]:
        table.number("rank", ranks())
        table.flags({"nonspacing": nonspacing()})
        table.map("decomposed", decomposed())
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
    vocabulary, merges = parts["model"]["vocab"], parts["model"]["merges"]
    # A page refuses texts with bytes that no piece spells; a vocabulary without common ones is another kind.
    missing = sorted(set(_ALPHABET) - vocabulary.keys())
    if missing:
        raise _refused(source, f"its vocabulary lacks the bytes {' '.join(missing)}")
    table.flags(of_byte_level())
    pairs = [each.split(" ") if isinstance(each, str) else each for each in merges]
    return {
        "merges": [vocabulary[piece] for pair in pairs for piece in pair],
        "blank": parts["pre_tokenizer"]["add_prefix_space"],
    }


def _added(backend: tokenizers.Tokenizer, source: str, parts: _Json) -> list[dict[str, Any]]:
    """The tokens that are found in a text before anything else; `find` is what is looked for."""
    normalizer = backend.normalizer
    found = []
    for token in parts["added_tokens"]:
        content = token["content"]
        if token["single_word"]:
            raise _refused(source, f"its added token {content!r} is to be found as a single word")
        find = content
        if token["normalized"] and normalizer is not None:
            find = normalizer.normalize_str(content)
        if not find:
            raise _refused(source, f"nothing is left of its added token {content!r} after the normalizer")
        kept = {name: token[name] for name in ("id", "content", "special", "normalized", "lstrip", "rstrip")}
        found.append(kept | {"find": find, "folded": content.casefold()})
    looked_for = [(token["normalized"], token["find"]) for token in found]
    for index, token in enumerate(found):
        if looked_for.index(looked_for[index]) != index:
            raise _refused(source, f"its added token {token['content']!r} looks like another in a text")
    return found


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
            [(kind, said)] = part.items()
            if kind == "Sequence":
                around.append((said["id"], said["type_id"]))
            else:
                token = tokens[said["id"]]
                around += [(id, said["type_id"]) for id in known(token["tokens"], token["ids"])]
        return around

    kind = None if processor is None else processor["type"]
    if (
        processor is None or kind == "ByteLevel"
    ):  # which is about spans alone, and regard has its own rule there
        single: _Around = [("A", 0)]
        pair: _Around = [("A", 0), ("B", 1)]
    elif kind == "Sequence" and len(processor["processors"]) == 1:
        return _template(backend, source, processor["processors"][0])
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
    for around, texts in ((single, ["A"]), (pair, ["A", "B"])):
        if [part for part, _ in around if part in ("A", "B")] != texts:
            raise _refused(source, "its template does not give every text once and in order")
    return {"single": single, "pair": pair}
