"""OpenVINO as an engine: encoders of BERT's kind, written as a graph of its own operations.

Nothing is exported or converted: the graph is put together from the network's weights, cut at the highest
layer asked for, with every layer asked for as an output.
"""

import importlib
import queue
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from regard.blocks import ACTIVATIONS, EncoderLayer, FeedForward, Linear, MultiHeadAttention, Stack
from regard.core.errors import InputError
from regard.core.extras import missing
from regard.embedding._post_norm import is_plain, norm_of
from regard.models import Network, Transformer
from regard.positions import LearnedPositions, RelativeBias

_HINTS: Final = {torch.float32: "f32", torch.bfloat16: "bf16"}


class OpenVinoEngine:
    """The encoders of BERT, DistilBERT, RoBERTa, ELECTRA and MPNet, run by OpenVINO on the CPU.

    Each call runs on one core, and as many calls run at once as there are threads; others wait.

    Args:
        network: an encoder of post-norm layers, on the CPU.
        layers: embedding layers, 0 to L.
        dtype: float32; or bfloat16, in which the matrix products are then worked out, where the processor
            has arithmetic for it. What comes out is float32.
        threads: how many calls run at once.

    Attributes:
        version: of OpenVINO; another may add in another order.

    Raises:
        MissingExtraError: openvino is not installed.
        InputError: another kind of network, or a type that the processor has no arithmetic for.

    Example:
        >>> import torch
        >>> from regard.models import load_checkpoint
        >>> engine = OpenVinoEngine(load_checkpoint().network, [0, 4])
        >>> [each.shape for each in engine.hidden(torch.tensor([101, 2924, 102]), [(1, 3)])]
        [torch.Size([3, 384]), torch.Size([3, 384])]
    """

    mixed = False

    def __init__(
        self,
        network: Network,
        layers: Sequence[int],
        *,
        dtype: torch.dtype = torch.float32,
        threads: int = 1,
    ) -> None:
        openvino = _openvino()
        stack = _stack(network)
        core = openvino.Core()
        self.version: str = openvino.__version__.split("-")[0]
        if dtype not in _HINTS:
            raise InputError(f"dtype must be float32 or bfloat16 with engine='openvino'; got {dtype}.")
        if not self.has_arithmetic(dtype):
            raise InputError("dtype must be float32 with engine='openvino': this processor has no bfloat16.")
        self._tables = stack.embeddings.tokens
        self._numbering, self._bias = stack.numbering, stack.bias
        self._layers = tuple(layers)
        self._computed = sorted({layer for layer in layers if layer})
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        if self._computed:
            settings = {
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": threads,
                "INFERENCE_PRECISION_HINT": _HINTS[dtype],
                "EXECUTION_MODE_HINT": "ACCURACY",
                "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
            }
            graph = _Graph(openvino).of(stack, self._computed)
            compiled = core.compile_model(graph, "CPU", settings)
            for _ in range(threads):
                self._idle.put(compiled.create_infer_request())

    @staticmethod
    def has_arithmetic(dtype: torch.dtype) -> bool:
        """Whether OpenVINO computes in a type on this processor.

        Raises:
            MissingExtraError: openvino is not installed.
        """
        able = _openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return dtype == torch.float32 or (dtype == torch.bfloat16 and "BF16" in able)

    def hidden(self, token_ids: Tensor, shape: Sequence[tuple[int, int]]) -> list[Tensor]:
        """See `Engine.hidden`; one run. Calls from several threads are safe."""
        ((rows, length),) = shape
        ids = token_ids.view(rows, length)
        made: dict[int, Tensor] = {}
        if 0 in self._layers:
            made[0] = self._tables(token_ids)
        if self._computed:
            inputs: list[NDArray[Any]] = [ids.numpy(), self._numbering(ids).numpy()]
            if self._bias is not None:
                places = torch.arange(length)
                bias = self._bias()
                assert not isinstance(bias, Tensor), "RelativeBias gives a bias by blocks"
                inputs.append(bias.block(places, places).detach().float().numpy())
            request = self._idle.get()
            try:
                given = request.infer(inputs, share_inputs=True)
                for place, layer in enumerate(self._computed):
                    made[layer] = torch.from_numpy(given[place].reshape(rows * length, -1))
            finally:
                self._idle.put(request)
        return [made[layer] for layer in self._layers]


def _openvino() -> Any:
    try:
        return importlib.import_module("openvino")
    except ImportError as error:
        raise missing("engine='openvino' needs", error, "openvino") from error


def _stack(network: Network) -> Stack:
    """The network's encoder, if the graph can hold all of it.

    Raises:
        InputError: it has a part that the graph does not know; the message names it.
    """
    stack = network.encoder if type(network) is Transformer and network.decoder is None else None
    if stack is None:
        part: str | None = "a decoder" if type(network) is Transformer else type(network).__name__
    else:
        part = _foreign(stack)
    if stack is None or part is not None:
        raise InputError(
            f"engine='openvino' runs encoders of BERT's kind; this model has a part of another: {part}. "
            "Give engine='torch'."
        )
    parameters = list(network.parameters())
    if any(each.device.type != "cpu" for each in parameters):
        raise InputError("engine='openvino' runs on the CPU; load the model there, or give engine='torch'.")
    return stack


def _foreign(stack: Stack) -> str | None:
    """The first part of a stack that the graph does not know; None where there is none."""
    embeddings = stack.embeddings
    if embeddings.positions is not None and type(embeddings.positions) is not LearnedPositions:
        return type(embeddings.positions).__name__
    if embeddings.norm is not None and type(embeddings.norm) is not nn.LayerNorm:
        return type(embeddings.norm).__name__
    if stack.norm is not None or stack.dropout is not None:
        return "a norm after the last layer"
    if stack.bias is not None and type(stack.bias) is not RelativeBias:
        return type(stack.bias).__name__
    for pattern in stack.patterns:
        part = pattern.mask if pattern.rotary is None else pattern.rotary
        if part is not None:
            return type(part).__name__
    for layer in stack.layers:
        if not is_plain(layer):
            return type(layer).__name__
        if _feed_forward(layer).activation not in _Graph.activations():
            return "the activation of its feed-forward networks"
        if stack.bias is not None and len(layer.attention.kept) != layer.attention.num_built:  # type: ignore[union-attr, arg-type]
            return "a relative bias of heads that were removed"
    return None


class _Graph:
    """Writes a stack as operations of OpenVINO."""

    def __init__(self, openvino: Any) -> None:
        self._openvino = openvino
        self._op = importlib.import_module("openvino.opset13")

    @staticmethod
    def activations() -> dict[Any, str]:
        """The activations that it knows, and what OpenVINO calls them."""
        return {
            F.gelu: "gelu",
            ACTIVATIONS["gelu_new"]: "gelu_tanh",
            ACTIVATIONS["gelu_pytorch_tanh"]: "gelu_tanh",
            F.relu: "relu",
            torch.tanh: "tanh",
            F.silu: "swish",
            F.mish: "mish",
        }

    def of(self, stack: Stack, layers: Sequence[int]) -> Any:
        """A model from ids (rows, n), positions (1 or rows, n) and, where the stack has one, the bias
        (1, heads, n, n), to the layers, each (rows, n, d)."""
        op = self._op
        ids = op.parameter([-1, -1], np.int64, name="ids")
        positions = op.parameter([-1, -1], np.int64, name="positions")
        inputs, bias = [ids, positions], None
        if stack.bias is not None:
            bias = op.parameter([1, -1, -1, -1], np.float32, name="bias")
            inputs.append(bias)
        x = self._embedded(stack, ids, positions)
        outputs = {}
        for number, layer in enumerate(list(stack.layers)[: max(layers)], start=1):
            assert isinstance(layer, EncoderLayer), "only such are taken"
            x = self._layer(layer, x, bias)
            outputs[number] = x
        return self._openvino.Model([outputs[layer] for layer in layers], inputs, "regard")

    def _embedded(self, stack: Stack, ids: Any, positions: Any) -> Any:
        op, embeddings = self._op, stack.embeddings
        x = self._rows(embeddings.tokens.weight, ids)
        if embeddings.scale != 1.0:
            x = op.multiply(x, op.constant(np.float32(embeddings.scale)))
        if embeddings.positions is not None:
            assert isinstance(embeddings.positions, LearnedPositions), "only such are taken"
            x = op.add(x, self._rows(embeddings.positions.weight, positions))
        if embeddings.token_types is not None:
            x = op.add(x, self._constant(embeddings.token_types.weight[0]))
        if embeddings.norm is not None:
            assert isinstance(embeddings.norm, nn.LayerNorm), "only such are taken"
            x = self._norm(embeddings.norm, x)
        return x if embeddings.projection is None else self._linear(x, [embeddings.projection])

    def _layer(self, layer: EncoderLayer, x: Any, bias: Any) -> Any:
        op, ffn = self._op, _feed_forward(layer)
        attended = self._attention(layer.attention, x, bias)
        x = self._norm(norm_of(layer.attention_residual), op.add(x, attended))
        hidden = self._activation(ffn.activation)(self._linear(x, [ffn.hidden]))
        return self._norm(norm_of(layer.ffn_residual), op.add(x, self._linear(hidden, [ffn.output])))

    def _attention(self, attention: MultiHeadAttention, x: Any, bias: Any) -> Any:
        op = self._op
        joined = self._linear(x, [attention.q, attention.k, attention.v])
        split = op.split(joined, op.constant(np.int64(2)), 3).outputs()
        sizes = op.constant(np.array([0, 0, attention.num_heads, -1], np.int64))
        order = op.constant(np.array([0, 2, 1, 3], np.int64))
        q, k, v = (op.transpose(op.reshape(part, sizes, special_zero=True), order) for part in split)
        head_dim = attention.q.out_features // attention.num_heads
        if attention.scale is not None:  # the operation's own is 1 / sqrt(head_dim)
            q = op.multiply(q, op.constant(np.float32(attention.scale * head_dim**0.5)))
        given = (q, k, v) if bias is None else (q, k, v, bias)
        context = op.scaled_dot_product_attention(*given, causal=False)
        flat = op.constant(np.array([0, 0, -1], np.int64))
        together = op.reshape(op.transpose(context, order), flat, special_zero=True)
        return self._linear(together, [attention.output])

    def _linear(self, x: Any, maps: Sequence[Linear | nn.Linear]) -> Any:
        """One product for maps that read the same vectors."""
        op = self._op
        weight = self._constant(torch.cat([each.weight for each in maps]))
        product = op.matmul(x, weight, transpose_a=False, transpose_b=True)
        return op.add(product, self._constant(torch.cat([_bias(each) for each in maps])))

    def _norm(self, norm: nn.LayerNorm, x: Any) -> Any:
        op = self._op
        axes = op.constant(np.array([-1], np.int64))
        unit = op.mvn(x, axes, normalize_variance=True, eps=norm.eps, eps_mode="inside_sqrt")
        return op.add(op.multiply(unit, self._constant(norm.weight)), self._constant(norm.bias))

    def _activation(self, activation: Any) -> Callable[[Any], Any]:
        op, name = self._op, self.activations()[activation]
        if name.startswith("gelu"):
            mode = "TANH" if name == "gelu_tanh" else "ERF"
            return lambda x: op.gelu(x, mode)
        found: Callable[[Any], Any] = getattr(op, name)
        return found

    def _rows(self, table: Tensor, numbers: Any) -> Any:
        op = self._op
        return op.gather(self._constant(table), numbers, op.constant(np.int64(0)))

    def _constant(self, tensor: Tensor) -> Any:
        return self._op.constant(tensor.detach().float().contiguous().numpy())


def _feed_forward(layer: nn.Module) -> FeedForward:
    assert isinstance(layer, EncoderLayer), "only such are taken"
    assert isinstance(layer.ffn, FeedForward), "only such are taken"
    return layer.ffn


def _bias(linear: Linear | nn.Linear) -> Tensor:
    return linear.weight.new_zeros(len(linear.weight)) if linear.bias is None else linear.bias
