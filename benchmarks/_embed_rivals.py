"""What a careful user of another library would write to embed sentences: mean-pooled and normalised.

sentence-transformers by its own `encode`; ONNX Runtime and OpenVINO on an export of transformers' model, in
batches of 32 texts sorted by tokens, which is faster than what these libraries do by default.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModel

Encode = Callable[[Sequence[str]], np.ndarray[Any, Any]]

RIVALS = ("st", "st-bf16", "onnxruntime", "openvino", "openvino-bf16")
"""The names of the rivals."""

_BATCH = 32


def rival(name: str, folder: Path, *, limit: int, threads: int) -> Encode:
    """A function from texts to vectors.

    Args:
        name: one of `RIVALS`.
        folder: the checkpoint.
        limit: the most tokens of a text; the rest is cut off.
        threads: the cores that it may use.
    """
    torch.set_num_threads(threads)
    if name.startswith("st"):
        return _sentence_transformers(folder, torch.bfloat16 if name == "st-bf16" else torch.float32, limit)
    exported = Path(tempfile.mkdtemp()) / "model.onnx"
    _export(folder, exported)
    if name == "onnxruntime":
        return _sorted(folder, limit, _onnxruntime(exported, threads))
    return _sorted(folder, limit, _openvino(exported, threads, "bf16" if name == "openvino-bf16" else "f32"))


def _sentence_transformers(folder: Path, dtype: torch.dtype, limit: int) -> Encode:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    body = Transformer(str(folder), max_seq_length=limit, model_kwargs={"dtype": dtype})
    pooling = Pooling(body.get_word_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[body, pooling, Normalize()], device="cpu")
    return lambda texts: model.encode(list(texts), batch_size=_BATCH, convert_to_tensor=True).float().numpy()


class _Hidden(torch.nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


def _export(folder: Path, path: Path) -> None:
    example = torch.ones(2, 8, dtype=torch.long)
    names = ("ids", "mask", "hidden")
    torch.onnx.export(
        _Hidden(folder),
        (example, example),
        path,
        input_names=list(names[:2]),
        output_names=[names[2]],
        dynamic_axes={name: {0: "texts", 1: "tokens"} for name in names},
        dynamo=False,
        opset_version=17,
    )


def _onnxruntime(path: Path, threads: int) -> Callable[..., Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: session.run(None, {"ids": ids, "mask": mask})[0]


def _openvino(path: Path, threads: int, precision: str) -> Callable[..., Any]:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }
    request = core.compile_model(core.read_model(path), "CPU", settings).create_infer_request()
    return lambda ids, mask: request.infer({"ids": ids, "mask": mask})[0]


def _sorted(folder: Path, limit: int, run: Callable[..., Any]) -> Encode:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)

    def encode(texts: Sequence[str]) -> np.ndarray[Any, Any]:
        ids = [row.ids for row in tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        vectors = None
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            token_ids = np.zeros((len(rows), len(ids[rows[0]])), np.int64)
            mask = np.zeros_like(token_ids)
            for place, row in enumerate(rows):
                token_ids[place, : len(ids[row])] = ids[row]
                mask[place, : len(ids[row])] = 1
            hidden = run(token_ids, mask)
            if vectors is None:
                vectors = np.zeros((len(ids), hidden.shape[-1]), np.float32)
            pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
            vectors[rows] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return vectors

    return encode
