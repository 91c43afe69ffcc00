"""The check beside a split: what one writer gave to one token is cut out, and the weight read again."""

from functools import partial

import torch
from torch import Tensor

from regard.core import AttentionInputs, Taps, attention_weights
from regard.models import Kind, Network, stack_of
from regard.tracing.edits import Edit, Write, Zero, edited
from regard.tracing.measures import attention_tap
from regard.tracing.reasons._writers import Writer
from regard.tracing.record import Trace
from regard.tracing.run import rerun


def weight_without(
    trace: Trace, writer: Writer, token: int, layer: int, head: int, kind: Kind, pair: tuple[int, int]
) -> float | None:
    """The weight of a pair of tokens when what a writer gave to a token is 0; None of biases."""
    loaded = trace.require_model()
    # What stops the writer from giving anything to this token.
    edit = _edit(loaded.network, writer, token)
    if edit is None:
        return None
    network, seen = edited(loaded, [edit]).network, list[AttentionInputs]()
    # The record of the layer, after the edit.
    taps = Taps({f"{attention_tap(network, kind, layer)}.inputs": seen.append})
    with torch.no_grad():
        rerun(trace, network, taps=taps)
        query, key = (torch.tensor([place], device=seen[0].q.device) for place in pair)
        return float(attention_weights(seen[0].head(head), query, key))


def _edit(network: Network, writer: Writer, token: int) -> Edit | None:
    stack = stack_of(writer.kind)
    if writer.name == "head":
        return Zero("context", layer=writer.layer, head=writer.head, query=token, kind=writer.kind)
    if writer.name == "ffn":
        return Zero("ffn", layer=writer.layer, query=token, kind=stack)
    if writer.name == "embedding":
        return Zero("residual", layer="input", query=token, kind=stack)
    if writer.name == "biases":
        return None
    # Summands of the embedding have taps of their own.
    tables = {"word": "tokens", "position": "positions", "token_type": "token_types"}
    return Write(f"{network.prefixes[stack]}embeddings.{tables[writer.name]}", partial(_without, token))


def _without(token: int, vectors: Tensor) -> Tensor:
    # A copy, of which nobody else knows.
    vectors[:, token] = 0.0
    return vectors
