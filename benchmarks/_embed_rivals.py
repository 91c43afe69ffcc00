"""What a careful user of another library would write to embed sentences: mean-pooled and normalised.

sentence-transformers by its own `encode`. ONNX Runtime and OpenVINO on an export of transformers' model
with its pooling, in batches of 1,024 tokens sorted by length, OpenVINO in as many streams as there are
threads: faster than what these libraries do by default. In 8 bits: ONNX Runtime's dynamic quantisation, per
channel; and NNCF's full quantisation for OpenVINO, with SmoothQuant, by 300 of the texts.
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
Run = Callable[[Sequence[dict[str, np.ndarray[Any, Any]]]], list[np.ndarray[Any, Any]]]

RIVALS = {
    "float32": ("st", "onnxruntime", "openvino"),
    "bfloat16": ("st-bf16", "openvino-bf16"),
    "int8": ("onnxruntime-int8", "openvino-int8"),
}
"""The names of the rivals, by what they compute in."""

_BATCH_TOKENS = 1024
_CALIBRATION = 300


def rival(name: str, folder: Path, texts: Sequence[str], *, limit: int, threads: int) -> Encode:
    """A function from texts to vectors.

    Args:
        name: one of `RIVALS`.
        folder: the checkpoint.
        texts: what ranges in 8 bits are taken from.
        limit: the most tokens of a text; the rest is cut off.
        threads: the cores that it may use.
    """
    torch.set_num_threads(threads)
    if name.startswith("st"):
        return _sentence_transformers(folder, torch.bfloat16 if name == "st-bf16" else torch.float32, limit)
    exported = Path(tempfile.mkdtemp()) / "model.onnx"
    _export(folder, exported)
    batches = _Batches(folder, limit)
    if name.startswith("onnxruntime"):
        run = _onnxruntime(exported, threads, int8=name.endswith("int8"))
    else:
        calibration = batches.of(texts[:: max(1, len(texts) // _CALIBRATION)])[1]
        run = _openvino(exported, threads, name.removeprefix("openvino").removeprefix("-"), calibration)
    return lambda texts: batches.encode(texts, run)


def _sentence_transformers(folder: Path, dtype: torch.dtype, limit: int) -> Encode:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    body = Transformer(str(folder), max_seq_length=limit, model_kwargs={"dtype": dtype})
    pooling = Pooling(body.get_word_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[body, pooling, Normalize()], device="cpu")
    return lambda texts: model.encode(list(texts), batch_size=32, convert_to_tensor=True).float().numpy()


class _Sentences(torch.nn.Module):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        here = mask[..., None].to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * here).sum(1) / here.sum(1))


def _export(folder: Path, path: Path) -> None:
    example = torch.ones(2, 8, dtype=torch.long)
    axes = {name: {0: "texts", 1: "tokens"} for name in ("ids", "mask")}
    torch.onnx.export(
        _Sentences(folder),
        (example, example),
        path,
        input_names=["ids", "mask"],
        output_names=["vectors"],
        dynamic_axes=axes | {"vectors": {0: "texts"}},
        dynamo=False,
        opset_version=17,
    )


def _onnxruntime(path: Path, threads: int, *, int8: bool) -> Run:
    import onnxruntime

    if int8:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        small = path.with_name("int8.onnx")
        quantize_dynamic(path, small, weight_type=QuantType.QInt8, per_channel=True)
        path = small
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda batches: [session.run(None, dict(batch))[0] for batch in batches]


def _openvino(path: Path, threads: int, precision: str, calibration: Sequence[Any]) -> Run:
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    if precision == "int8":
        import nncf

        model = nncf.quantize(
            model,
            nncf.Dataset(calibration),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(calibration),
        )
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": threads,
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
    }
    queue = openvino.AsyncInferQueue(core.compile_model(model, "CPU", settings), threads)

    def run(batches: Sequence[dict[str, np.ndarray[Any, Any]]]) -> list[np.ndarray[Any, Any]]:
        made: list[Any] = [None] * len(batches)

        def keep(request: Any, place: int) -> None:
            made[place] = request.get_output_tensor().data.copy()

        queue.set_callback(keep)
        for place, batch in enumerate(batches):
            queue.start_async(batch, place)
        queue.wait_all()
        return made

    return run


class _Batches:
    """Texts as padded ids: sorted by tokens, so many tokens together."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(limit)

    def of(self, texts: Sequence[str]) -> tuple[list[list[int]], list[dict[str, np.ndarray[Any, Any]]]]:
        """The rows of each batch, and what it holds."""
        ids = [row.ids for row in self._tokenizer.encode_batch(list(texts))]
        rows: list[list[int]] = []
        for row in sorted(range(len(ids)), key=lambda row: -len(ids[row])):
            if not rows or (len(rows[-1]) + 1) * len(ids[rows[-1][0]]) > _BATCH_TOKENS:
                rows.append([])
            rows[-1].append(row)
        batches = []
        for each in rows:
            token_ids = np.zeros((len(each), len(ids[each[0]])), np.int64)
            mask = np.zeros_like(token_ids)
            for place, row in enumerate(each):
                token_ids[place, : len(ids[row])] = ids[row]
                mask[place, : len(ids[row])] = 1
            batches.append({"ids": token_ids, "mask": mask})
        return rows, batches

    def encode(self, texts: Sequence[str], run: Run) -> np.ndarray[Any, Any]:
        """The vectors, in the order of the texts."""
        rows, batches = self.of(texts)
        made = run(batches)
        vectors = np.empty((len(texts), made[0].shape[1]), np.float32)
        for each, own in zip(rows, made, strict=True):
            vectors[each] = own
        return vectors
