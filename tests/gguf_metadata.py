"""The metadata of GGUF files, made of other tokenizers as llama.cpp's converter makes it; and such files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
ROLES = {"unk": "unknown", "sep": "seperator", "pad": "padding"}


def keys(**said: Any) -> dict[str, object]:
    """The keys of a tokenizer; a role such as `bos` stands for its id."""
    roles = ("bos", "eos", "cls", "mask", "eot", "eom", *ROLES)
    names = {role: f"{ROLES.get(role, role)}_token_id" for role in roles}
    return {f"tokenizer.ggml.{names.get(key, key.replace('__', '.'))}": value for key, value in said.items()}


def of_backend(backend: tokenizers.Tokenizer, *, fill: int = 0, **said: Any) -> dict[str, object]:
    """Of pairs of bytes or of word pieces; `fill` is how many rows have no piece."""
    parts = json.loads(backend.to_str())
    special = {each["id"]: each["special"] for each in parts["added_tokens"]}
    pieces = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    assert [id for _, id in pieces] == list(range(len(pieces)))
    types = [{None: NORMAL, True: CONTROL, False: USER_DEFINED}[special.get(id)] for id in range(len(pieces))]
    tokens = [piece for piece, _ in pieces] + [f"[PAD{len(pieces) + more}]" for more in range(fill)]
    types += [UNUSED] * fill
    if parts["model"]["type"] == "WordPiece":
        spelled = zip(tokens, types, strict=True)
        tokens = [
            each if kind == CONTROL else each[2:] if each.startswith("##") else f"▁{each}"
            for each, kind in spelled
        ]
        said = {"model": "bert"} | said
    else:
        merges = parts["model"]["merges"]
        said = {"model": "gpt2", "merges": [" ".join(each) for each in merges]} | said
    return keys(tokens=tokens, token_type=types, **said)


def of_sentencepiece(path: Path, *, fairseq: bool = False, fill: int = 0, **said: Any) -> dict[str, object]:
    """Of a SentencePiece file; `fairseq` gives the first ids to the tokens that fairseq gives them to."""
    from transformers.convert_slow_tokenizer import import_protobuf

    proto = import_protobuf().ModelProto.FromString(path.read_bytes())
    # The file's types are the format's.
    rows = [
        (each.piece.replace("▁", " ") if each.type == USER_DEFINED else each.piece, each.score, each.type)
        for each in proto.pieces
    ]
    if fairseq:
        heads = [
            ("<s>", 0.0, CONTROL),
            ("<pad>", 0.0, CONTROL),
            ("</s>", 0.0, CONTROL),
            ("<unk>", 0.0, UNKNOWN),
        ]
        rows = [*heads, *rows[3:], ("<mask>", 0.0, CONTROL)]
    rows += [(f"[PAD{len(rows) + more}]", -1000.0, UNUSED) for more in range(fill)]
    tokens, scores, types = (list(each) for each in zip(*rows, strict=True))
    spec = proto.normalizer_spec
    unigram = proto.trainer_spec.model_type == proto.trainer_spec.UNIGRAM
    said = {"model": "t5" if unigram else "llama", "add_space_prefix": spec.add_dummy_prefix} | said
    if unigram:
        said["remove_extra_whitespaces"] = spec.remove_extra_whitespaces
        said["precompiled_charsmap"] = np.frombuffer(spec.precompiled_charsmap, np.uint8)
    return keys(
        tokens=tokens, scores=np.array(scores, np.float32), token_type=np.array(types, np.int32), **said
    )


def write_gguf(
    path: Path, metadata: Mapping[str, object], tensors: Mapping[str, Any] | None = None, **options: Any
) -> Path:
    """A file with these keys and values, `general.architecture` among them, and these tensors."""
    said = dict(metadata)
    writer = gguf.GGUFWriter(path, str(said.pop("general.architecture", "llama")), **options)
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in said.items():
        if isinstance(value, np.ndarray):
            writer.add_array(key, value.tobytes() if value.dtype == np.uint8 else value.tolist())
        else:
            add.get(type(value), writer.add_array)(key, value)
    for name, tensor in (tensors or {}).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
