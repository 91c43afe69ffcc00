"""From a trace to the record that the attention page draws."""

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.tracing._trace import Trace
from regard.views import AttentionRecord, PageToken


def page_record(trace: Trace) -> AttentionRecord:
    """What the page needs of a trace: tokens, q, k and the scale.

    Raises:
        InputError: a layer has a mask, bias or soft cap, which the page does not draw: it would show other
            weights than the model's.
    """
    if trace.decoder is not None:
        raise InputError(
            f"the page draws encoders, and {trace.model} has a decoder; `regard explain` and "
            "trace.weights give its numbers."
        )
    layers = [each.inputs for each in trace.source.attention]
    first = layers[0]
    for layer, inputs in enumerate(layers):
        unknown = [said for name, said in _NOT_DRAWN.items() if getattr(inputs, name) is not None]
        odd = (
            inputs.factor != first.factor
            or inputs.q.shape != first.q.shape
            or inputs.k.shape != first.k.shape
        )
        if unknown or odd:
            raise InputError(
                f"the page cannot draw layer {layer} exactly: it has "
                f"{' and '.join(unknown) or 'a scale or sizes of its own'}. `regard "
                "explain` and trace.weights give its numbers."
            )
    if not trace.encoding.texts:
        raise InputError("the page draws a text; this trace has token ids only.")
    texts = trace.encoding.texts
    return AttentionRecord(
        text=texts[0],
        pair=texts[1] if len(texts) > 1 else None,
        model=trace.model,
        tokens=tuple(
            PageToken(text=token.text, special=token.special, sequence=token.sequence, word=token.word)
            for token in trace.encoding.tokens
        ),
        q=_stack([inputs.q for inputs in layers]),
        k=_stack([inputs.k for inputs in layers]),
        scale=first.factor,
    )


_NOT_DRAWN = {
    "mask": "a mask",
    "bias": "a bias",
    "softcap": "a soft cap",
    "dropout": "dropout",
    "sinks": "sinks",
    "weights": "weights that an edit wrote",
}


def _stack(tensors: list[Tensor]) -> np.ndarray:
    return torch.cat(tensors).float().cpu().numpy()
