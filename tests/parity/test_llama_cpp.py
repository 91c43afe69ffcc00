"""Texts of llama.cpp: SmolLM2 writes the same ones, greedily, from the same weights in float32.

From the file itself llama.cpp multiplies the blocks with activations that it rounds to 8 bits, and its texts
part from those of exact arithmetic sooner or later. So its file here has the same weights, unpacked by the
`gguf` package.
"""

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

import regard
from regard.checkpoints import find

xllamacpp = pytest.importorskip("xllamacpp", reason="pip install --no-deps xllamacpp")
pytestmark = pytest.mark.slow

NEW = 32
PROMPTS = (
    "The capital of France is",
    "Once upon a time",
    "When Mary and John went to the store, John gave a drink to",
    "def fibonacci(n):",
    "The three primary colours are",
    "1, 2, 3, 4,",
    "La capitale de la France est",
    "The best thing about a rainy day is",
    "Dear Sir or Madam,",
    "In 1969, men landed",
)


def _unpacked(file: Path, into: Path) -> Path:
    """The same file with every block as float32."""
    read = gguf.GGUFReader(file)
    writer = gguf.GGUFWriter(into, "llama")
    for field in read.fields.values():
        if field.name != "general.architecture" and not field.name.startswith("GGUF."):
            kind, sub = field.types[0], field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), kind, sub_type=sub)
    for tensor in read.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return into


def _writer(file: Path) -> Callable[[str], str]:
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_ctx, params.warmup = 256, False
    server = xllamacpp.Server(params)

    def write(prompt: str) -> str:
        asked = {"prompt": prompt, "n_predict": NEW, "temperature": 0, "top_k": 1, "cache_prompt": False}
        answer = server.handle_completions(asked)
        answer = json.loads(answer) if isinstance(answer, str) else answer
        return str(answer["choices"][0]["text"] if "choices" in answer else answer["content"])

    return write


def test_greedy_texts_are_those_of_llama_cpp(tmp_path: Path) -> None:
    file = find("smollm2").folder
    theirs, model = _writer(_unpacked(file, tmp_path / "f32.gguf")), regard.load(file)
    found = {prompt: model.generate(prompt, max_length=NEW).text for prompt in PROMPTS}
    assert found == {prompt: theirs(prompt) for prompt in PROMPTS}
