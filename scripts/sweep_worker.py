"""One architecture a line on stdin, what came of the lens on it as a line of JSON on stdout."""

import contextlib
import copy
import inspect
import json
import os
import re
import sys
from typing import Any

import torch
import transformers
from sweep_sizes import PREFERRED, tiny_config
from torch import Tensor
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from regard.core import Taps, attention_weights
from regard.core.errors import RegardError
from regard.foreign import LensNetwork

EAGER = 1e-5
"""The most that weights may differ from those that eager attention hands back, absolute."""

NEEDS_MORE = (
    r"pixel|image|required positional|bbox|Bbox|visual|vision|audio|input_features|states|have to specify"
)
"""In what a model raises on token ids alone: that it wants something else, and not that its sizes are odd."""

SOURCE, TARGET = 17, 11
"""Tokens of a text and of what a decoder reads; the second text of the batch is padded."""


def look(model_type: str) -> dict[str, Any]:
    """Build an architecture, look at it through the lens, and check what is seen."""
    row: dict[str, Any] = {"model_type": model_type}
    cls = class_of(model_type)
    if cls is None:
        return row | {"result": "no text", "why": ""}
    row["class"] = cls.__name__
    try:
        config = tiny_config(model_type)
        model = built(cls, config)
    except Exception as error:  # whatever a model of unknown make raises
        return row | {"result": "not built", "why": reason(error)}
    if "input_ids" not in inspect.signature(model.forward).parameters:
        return row | {"result": "no text", "why": ""}
    row["kernel"] = str(model.config.get_text_config()._attn_implementation)
    try:
        network = LensNetwork(model)
    except RegardError as error:
        broken = "does not run on " in str(error) and not wants_more(model, str(error))
        return row | {"result": "not built" if broken else "refused", "why": str(error)}
    except Exception as error:
        return row | {"result": "fails", "why": f"the lens: {reason(error)}"}
    row["layers"] = " + ".join(
        str(network.layout.depth(kind))
        for kind in ("encoder", "decoder", "cross")
        if network.layout.depth(kind)
    )
    row["context"] = network.parity.context
    try:
        row |= checked(model, network)
    except Exception as error:
        return row | {"result": "fails", "why": reason(error)}
    return row | ({"result": "seen, text only"} if row["result"] == "seen" and reads_more(model_type) else {})


def wants_more(model: Any, message: str) -> bool:
    """Whether a model that does not run on token ids wants something else, and is not merely built oddly."""
    others = {"pixel_values", "input_features", "bbox", "audio_values", "speech_inputs", "input_values"}
    given = "NoneType" in message and others & set(inspect.signature(model.forward).parameters)
    return bool(given or re.search(NEEDS_MORE, message))


OTHER_INPUT = re.compile(r"pixel|image|video|visual|audio|speech|input_features|input_values|patches")
"""The names of what a forward takes beside text: images, videos and sound."""


def reads_more(model_type: str) -> bool:
    """Whether the architecture also reads images or sound, which the lens hands to no model.

    It counts what the class takes that is looked at, and what the class without a head takes: Whisper's
    decoder alone reads text, Whisper does not.
    """
    whole = modeling_auto.MODEL_MAPPING_NAMES.get(model_type, "")
    found = getattr(transformers, whole if isinstance(whole, str) else whole[0], None)
    classes = [each for each in (class_of(model_type), found) if each is not None]
    names = {name for cls in classes for name in inspect.signature(cls.forward).parameters}
    return any(OTHER_INPUT.search(name) for name in names)


def class_of(model_type: str) -> type | None:
    """The class with a language model's head, or else the one without a head."""
    # A text model with an image tower is built whole: its text half has a name of its own.
    composite = "text_config" in getattr(CONFIG_MAPPING[model_type], "sub_configs", {})
    for mapping in (PREFERRED[3], *PREFERRED) if composite else PREFERRED:
        name = getattr(modeling_auto, mapping).get(model_type)
        if name is not None:
            name = name if isinstance(name, str) else name[0]
            cls = getattr(transformers, name, None)
            if cls is not None and "input_ids" in inspect.signature(cls.forward).parameters:
                return cls
    return None


def built(cls: Any, config: Any) -> Any:
    """The model with weights drawn anew: those of a fresh one make attention uniform, which hides faults."""
    with torch.device("meta"):  # no memory, in case the sizes are those of the real model
        count = sum(parameter.numel() for parameter in cls._from_config(copy.deepcopy(config)).parameters())
    if count > 20_000_000:
        raise ValueError(f"its sizes are still large, {count:,} parameters")
    torch.manual_seed(0)
    model = cls._from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                wide = parameter.ndim >= 2
                noise = torch.randn(parameter.shape) * (parameter.shape[-1] ** -0.5 if wide else 0.1)
                parameter.copy_(noise if wide else parameter + noise)
    return model


def checked(model: Any, network: Any) -> dict[str, Any]:
    """Output, weights and writes on a padded batch of another length than that of the lens' own look."""
    arguments, mask, target = batch(network)
    with torch.no_grad():
        untouched = model(**arguments | {"use_cache": False} if takes(model, "use_cache") else arguments)
    inputs: dict[str, Any] = {}
    names = [name for name in network.tap_names() if name.endswith(".inputs")]
    ours = run(network, arguments, mask, target, Taps({name: keep(inputs, name) for name in names}))
    expected = untouched.get("last_hidden_state")
    for mine, theirs in ((ours.last_hidden_state, expected), (ours.logits, untouched.get("logits"))):
        if isinstance(theirs, Tensor) and not torch.equal(torch.nan_to_num(mine), torch.nan_to_num(theirs)):
            return {"result": "fails", "why": f"output differs by {float((mine - theirs).abs().max()):.1e}"}
    if not bool(ours.last_hidden_state.isfinite().all()):
        return {"result": "not built", "why": "the tiny random model gives numbers that are not finite"}
    error = against_eager(model, arguments, inputs, mask)
    if error is not None and not error <= EAGER:
        return {"result": "fails", "why": f"weights differ from eager attention's by {error:.1e}"}
    unwritten = [
        name for name in written_taps(network) if not moves(network, arguments, mask, target, ours, name)
    ]
    if unwritten:
        return {"result": "fails", "why": f"written without effect: {', '.join(unwritten)}"}
    return {"result": "seen", "eager": error}


def batch(network: Any) -> tuple[dict[str, Any], Tensor | None, Tensor | None]:
    generator = torch.Generator().manual_seed(1)
    low, high = 20, min(network.config.vocab_size, 100)
    ids = torch.randint(low, high, (2, SOURCE), generator=generator)
    arguments: dict[str, Any] = {"input_ids": ids}
    mask = None
    if takes(network.hf_model, "attention_mask"):
        mask = torch.arange(SOURCE)[None] < torch.tensor([[SOURCE], [SOURCE - 4]])
        arguments["attention_mask"] = mask.long()
    target = None
    if len(network.prefixes) == 2:
        target = torch.randint(low, high, (2, TARGET), generator=generator)
        arguments["decoder_input_ids"] = target
    return arguments, mask, target


def run(
    network: Any, arguments: dict[str, Any], mask: Tensor | None, target: Tensor | None, taps: Taps
) -> Any:
    with torch.no_grad():
        return network(arguments["input_ids"], mask=mask, decoder_token_ids=target, taps=taps)


def against_eager(
    model: Any, arguments: dict[str, Any], inputs: dict[str, Any], mask: Tensor | None
) -> float | None:
    """The largest difference from the weights that transformers' eager attention hands back, or None."""
    eager = copy.deepcopy(model)
    try:
        eager.set_attn_implementation("eager")
        with torch.no_grad():
            result = eager(**arguments, output_attentions=True)
    except Exception:
        return None
    largest = None
    for ours, theirs in (
        ("encoder.layers.{}.attention.inputs", "encoder_attentions"),
        ("decoder.layers.{}.attention.inputs", "decoder_attentions"),
        ("decoder.layers.{}.cross_attention.inputs", "cross_attentions"),
        ("layers.{}.attention.inputs", "attentions"),
    ):
        given = [each for each in result.get(theirs) or () if isinstance(each, Tensor)]
        mine = [name for name in inputs if name in {ours.format(layer) for layer in range(len(inputs))}]
        if not given or len(given) != len(mine):
            continue
        for name, weights in zip(mine, given, strict=True):
            own = attention_weights(inputs[name])
            if own.shape[-1] == weights.shape[-1] + 1:
                own = own[..., :-1]
                # Some hand back the softmax without the sink, which they then scale the context by.
                if bool(((weights.sum(-1) - 1.0).abs() < EAGER).all()):
                    own = own / own.sum(-1, keepdim=True)
            if own.shape != weights.shape:
                return None
            apart = (own - weights).abs()
            # Queries that are padding: a row that may attend to nothing is uniform in eager attention.
            if mask is not None and apart.shape[2] == mask.shape[1]:
                apart = apart * mask[:, None, :, None]
            largest = max(largest or 0.0, float(apart.max()))
    return largest


def written_taps(network: Any) -> list[str]:
    """The taps of the first layer of each kind, and those that belong to no layer."""
    return [
        name
        for name in network.tap_names()
        if not name.endswith(".inputs") and (".0." in name or "layers." not in name)
    ]


def moves(network: Any, arguments: dict[str, Any], mask: Any, target: Any, before: Any, name: str) -> bool:
    """Whether writing at a tap changes the output."""
    generator = torch.Generator().manual_seed(2)

    def write(value: Tensor) -> Tensor:
        noise = torch.rand(value.shape, generator=generator, dtype=value.dtype)
        return value * (0.5 + noise)

    after = run(network, arguments, mask, target, Taps({name: write}))
    for one, other in ((before.last_hidden_state, after.last_hidden_state), (before.logits, after.logits)):
        if one is not None and not torch.equal(one, other):
            return True
    return False


def keep(store: dict[str, Any], name: str) -> Any:
    return lambda value: store.update({name: value})


def takes(model: Any, name: str) -> bool:
    return name in inspect.signature(model.forward).parameters


def reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}"


def main() -> None:
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a model prints stays out of the answers
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            answer = look(line.strip())
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    assert CONFIG_MAPPING is not None
    main()
