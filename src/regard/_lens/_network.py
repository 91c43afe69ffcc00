"""A transformers model as a `regard.models.Network`: the model's own forward pass, listened to."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard._lens import _implementations
from regard._lens._implementations import SEEN, configs_of
from regard._lens._modules import main_output
from regard._lens._parity import Parity, bound_of, layer_parity, output_error
from regard._lens._points import Site, lay_out
from regard._lens._probe import first_run, quiet
from regard._lens._run import Run
from regard._lens._survey import Survey, accepted, survey, unseen
from regard.core import Mask, Taps
from regard.core.errors import InputError, RegardError
from regard.models import (
    FAMILIES,
    Kind,
    Network,
    Output,
    Projection,
    StackKind,
    Unembedding,
    attention_name,
    check_ids,
    is_linear,
    read_projection,
    stack_of,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LensConfig:
    """The sizes of a model that is seen through the lens, as they showed when it ran.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream.
        num_layers: attention layers; of the encoder, where there are two stacks.
        num_heads: query heads of the first layer.
        max_seq_len: `max_position_embeddings`, or None where the config has none.
        num_token_types: rows of the table of token types; 0 where the model takes none.
        architecture: the class of the transformers model.
    """

    vocab_size: int
    d_model: int
    num_layers: int
    num_heads: int
    max_seq_len: int | None
    num_token_types: int
    architecture: str


class LensNetwork(Network):
    """A transformers model, called and listened to like a network of regard's own.

    Its forward pass is the model's, on the model's own kernel, and gives the same numbers bit for bit, unless
    a listener writes. Nothing stays in the model: its attention implementation is put back after every call.
    Threads may share it.

    Args:
        hf_model: a transformers model in evaluation mode, with "sdpa" or "eager" attention.

    Attributes:
        parity: the largest errors of the look at it on creation.

    Raises:
        InputError: a model that cannot be seen, with the reason.
        RegardError: the look at it found other numbers than the model's.
    """

    parity: Parity

    def __init__(self, hf_model: Any) -> None:
        super().__init__()
        _check_model(hf_model)
        _implementations.register()
        self.hf_model = hf_model
        self.training = False  # as the model is: checked above
        self._name = type(hf_model).__name__
        self._accepted = accepted(hf_model)
        self._configs = configs_of(hf_model)
        _check_implementations(self._configs, self._name)
        self._vocab_size = _vocabulary(hf_model)
        arguments, untouched = _first_run(hf_model, self._vocab_size, self._name)
        found = survey(hf_model, self._configs, arguments)
        self._check_seen(found)
        target = arguments.get("decoder_input_ids")
        self.layout = lay_out(found, arguments["input_ids"], target, self._name)
        self.prefixes = self.layout.prefixes
        self.start_id = _start_id(hf_model) if len(self.prefixes) == 2 else None
        self.config = self._sizes(found)
        self._norms = {kind: self._find_norm(found, kind) for kind in self.prefixes}
        self._output_layer = self._find_output_layer(found)
        # Once: a trace asks for them at every call.
        self._tap_names = (*self.layout.tap_names(), *(["logits"] if self._has_logits else []))
        self.parity = self._compare(found, untouched)
        self.parity.check(f"lens on {self._name}")

    def depth(self, kind: StackKind) -> int:
        """Attention layers of a stack."""
        return self.layout.depth(kind)

    def limit(self, kind: StackKind) -> int | None:
        """The rows of a stack's table of positions; None where none was seen."""
        return self.layout.limits.get(kind)

    def tap_names(self) -> list[str]:
        """Every point that was found, in the order of the forward pass."""
        return list(self._tap_names)

    def layer(self, kind: StackKind, index: int) -> nn.Module | None:
        """None: the layers are transformers' own."""
        return None

    def projection(self, kind: Kind, layer: int) -> Projection | None:
        """From the heads of a layer to its output, where a module was given the joined heads, bit for bit."""
        name = f"{self.prefixes[stack_of(kind)]}layers.{layer}.{attention_name(kind)}"
        point = self.layout.points.get(f"{name}.output")
        if point is None:
            return None
        site = next(site for site in self.layout.sites if site.name == name)
        return read_projection(point.execution.module, site.num_heads)

    def final_norm(self, kind: StackKind) -> nn.Module | None:
        """The module between the last layer and the stack's output, if it was seen to be just that."""
        return self._norms[kind]

    @property
    def has_vocabulary_head(self) -> bool:
        """Whether the model names an output layer over its vocabulary and gives logits."""
        return self._has_logits and self.hf_model.get_output_embeddings() is not None

    def unembedding(self) -> Unembedding | None:
        """The output layer, where it was seen to make the logits of the last hidden state by itself."""
        head = self._output_layer
        if head is None:
            return None
        bias = None if head.bias is None else head.bias.detach()
        return Unembedding(weight=head.weight.detach(), bias=bias)

    def readout(self, state: Tensor, *, normed: bool) -> Tensor | None:
        """None: what lies between the last layer and the logits is transformers' own."""
        return None

    def forward(
        self,
        token_ids: Tensor,
        *,
        mask: Tensor | Mask | None = None,
        token_types: Tensor | None = None,
        positions: Tensor | None = None,
        decoder_token_ids: Tensor | None = None,
        decoder_mask: Tensor | Mask | None = None,
        decoder_positions: Tensor | None = None,
        logits: bool = True,
        taps: Taps | None = None,
    ) -> Output:
        """See `Network.forward`; masks are bool tensors here, of which the model makes its own."""
        _check_mode(self.hf_model)
        check_ids("token_ids", token_ids, self._vocab_size, None)
        arguments: dict[str, Any] = {"input_ids": token_ids}
        self._add(arguments, "attention_mask", "mask", _padding("mask", mask, token_ids))
        self._add(arguments, "token_type_ids", "token_types", token_types)
        self._add(arguments, "position_ids", "positions", positions)
        if len(self.prefixes) == 2:
            if decoder_token_ids is None:
                raise InputError(
                    "decoder_token_ids must be given: this model has an encoder and a decoder, which reads "
                    "them."
                )
            check_ids("decoder_token_ids", decoder_token_ids, self._vocab_size, None)
            if len(decoder_token_ids) != len(token_ids):
                raise InputError(
                    f"decoder_token_ids must have the batch of token_ids, {len(token_ids)}; "
                    f"got {len(decoder_token_ids)}."
                )
            arguments["decoder_input_ids"] = decoder_token_ids
            padding = _padding("decoder_mask", decoder_mask, decoder_token_ids)
            self._add(arguments, "decoder_attention_mask", "decoder_mask", padding)
            self._add(arguments, "decoder_position_ids", "decoder_positions", decoder_positions)
        elif any(each is not None for each in (decoder_token_ids, decoder_mask, decoder_positions)):
            raise InputError(
                "decoder_token_ids, decoder_mask and decoder_positions must be None: "
                "this model has one stack."
            )
        if taps is not None:
            taps.check(self._tap_names)
        if not logits and "logits_to_keep" in self._accepted:
            arguments["logits_to_keep"] = 1
        ends = tuple(f"{prefix}output" for prefix in self.prefixes.values())
        run = Run(self.layout, taps, capture=ends)
        with run.listening(self._configs):
            result = self.hf_model(**arguments, **quiet(self._accepted))
        return self._output(result, run, logits, taps)

    def _add(self, arguments: dict[str, Any], theirs: str, ours: str, value: Tensor | None) -> None:
        if value is None:
            return
        if theirs not in self._accepted:
            raise InputError(f"{ours} must be None: {self._name} takes no {theirs}.")
        arguments[theirs] = value

    def _output(self, result: Any, run: Run, logits: bool, taps: Taps | None) -> Output:
        states = {kind: run.captured.get(f"{prefix}output") for kind, prefix in self.prefixes.items()}
        if states.get("encoder") is None and "encoder" in states:
            states["encoder"] = result.get("encoder_last_hidden_state")
        outermost: StackKind = "decoder" if "decoder" in states else "encoder"
        last = states[outermost]
        if last is None:
            last = main_output(result)
        if last is None:
            raise RegardError(f"{self._name} gives no last hidden state; hand in its base model instead.")
        scores = result.get("logits") if logits else None
        if scores is not None and taps is not None:
            scores = taps.offer("logits", scores)
        pooled = result.get("pooler_output")
        return Output(
            last_hidden_state=last,
            logits=scores,
            pooled=pooled if isinstance(pooled, Tensor) else None,
            encoder_state=states.get("encoder", last) if "encoder" in states else None,
            decoder_state=last if "decoder" in states else None,
        )

    def _check_seen(self, found: Survey) -> None:
        names = {id(module): name for name, module in self.hf_model.named_modules()}
        hidden = unseen(found, names)
        if not found.calls:
            what = f": {', '.join(hidden[:4])}" if hidden else ""
            raise InputError(
                f"hf_model {self._name} makes no attention call through transformers' registry "
                f"(ALL_ATTENTION_FUNCTIONS), which the lens listens to{what}.{_way_out(self.hf_model)}"
            )
        if hidden:
            raise InputError(
                f"hf_model {self._name} attends past transformers' registry in {len(hidden)} modules, such "
                f"as {', '.join(hidden[:3])}: a trace would lack them.{_way_out(self.hf_model)}"
            )

    def _sizes(self, found: Survey) -> LensConfig:
        config = self.hf_model.config
        text = config.get_text_config()
        longest = getattr(text, "max_position_embeddings", None)
        types = getattr(text, "type_vocab_size", None)
        takes_types = "token_type_ids" in self._accepted and isinstance(types, int)
        first = self.layout.sites[0]
        self._has_logits = isinstance(found.result.get("logits"), Tensor)
        return LensConfig(
            vocab_size=self._vocab_size,
            d_model=self._width(found),
            num_layers=self.layout.depth(next(iter(self.prefixes))),
            num_heads=first.num_heads,
            max_seq_len=longest if isinstance(longest, int) and longest > 0 else None,
            num_token_types=types if takes_types and isinstance(types, int) else 0,
            architecture=self._name,
        )

    def _width(self, found: Survey) -> int:
        """The size of the residual stream, from the last hidden state."""
        kind = list(self.prefixes)[-1]
        point = self.layout.points.get(f"{self.prefixes[kind]}output")
        last = main_output(found.result) if point is None else found.outputs[point.execution.key]
        if last is None:
            raise InputError(
                f"hf_model {self._name} gives no last hidden state, in its output or where it runs; hand in "
                "its text model instead."
            )
        return int(last.shape[-1])

    def _compare(self, found: Survey, untouched: Any) -> Parity:
        sites = {site.execution.key: site for site in self.layout.sites}
        layers = []
        for call in found.calls:
            site = sites[call.execution.key]
            heads = self._heads(site, found, call.context)
            layers.append(layer_parity(site.kind, site.layer, call.inputs, call.context, heads=heads))
        dtype = found.calls[0].inputs.q.dtype
        error = output_error(_tensors(found.result), _tensors(untouched))
        return Parity(layers=tuple(layers), output=error, bound=bound_of(dtype))

    def _heads(self, site: Site, found: Survey, context: Tensor) -> float | None:
        """How far the heads are from summing to the layer's output; None where no projection is seen."""
        projection = self.projection(site.kind, site.layer)
        if projection is None:
            return None
        point = self.layout.points[f"{site.name}.output"]
        return projection.error(context, found.outputs[point.execution.key])

    def _find_norm(self, found: Survey, kind: StackKind) -> nn.Module | None:
        prefix, points = self.prefixes[kind], self.layout.points
        end = points.get(f"{prefix}output")
        last = points.get(f"{prefix}layers.{self.depth(kind) - 1}.output")
        if end is None or last is None:
            return None
        before, after = (found.outputs[each.execution.key] for each in (last, end))
        for execution in found.order:
            given, made = (each.get(execution.key) for each in (found.inputs, found.outputs))
            if given is None or made is None or given.shape != before.shape or made.shape != after.shape:
                continue
            if torch.equal(given, before) and torch.equal(made, after) and not torch.equal(before, after):
                return execution.module
        return None

    def _find_output_layer(self, found: Survey) -> nn.Linear | None:
        if not self.has_vocabulary_head:
            return None
        head = self.hf_model.get_output_embeddings()
        end = self.layout.points.get(f"{list(self.prefixes.values())[-1]}output")
        given, made = (each.get((id(head), 0)) for each in (found.inputs, found.outputs))
        if not is_linear(head) or end is None or given is None or made is None:
            return None
        is_whole = torch.equal(given, found.outputs[end.execution.key]) and torch.equal(
            made, found.result["logits"]
        )
        return head if is_whole else None


def _check_model(hf_model: Any) -> None:
    modeling, _ = _implementations.transformers_modules()
    if not isinstance(hf_model, modeling.PreTrainedModel):
        raise InputError(
            "hf_model must be a transformers PreTrainedModel, as AutoModel.from_pretrained gives it; got "
            f"{type(hf_model).__name__}. Hand in the model itself, before torch.compile or a wrapper."
        )
    _check_mode(hf_model)
    if "input_ids" not in accepted(hf_model):
        raise InputError(f"hf_model must read token ids; {type(hf_model).__name__} takes no input_ids.")
    if any(parameter.is_meta for parameter in hf_model.parameters()):
        raise InputError("hf_model must hold its weights; some of its parameters are on the meta device.")


def _check_mode(hf_model: Any) -> None:
    if hf_model.training:
        raise InputError(
            "hf_model must be in evaluation mode: in training, dropout makes every pass another; "
            "call hf_model.eval()."
        )


def _check_implementations(configs: list[Any], name: str) -> None:
    others = {
        str(config._attn_implementation)
        for config in configs
        if getattr(config, "_attn_implementation", None) not in (None, *SEEN)
    }
    if others:
        raise InputError(
            f"hf_model {name} attends by {', '.join(sorted(others))}, a kernel that takes no mask the lens "
            "could read; call hf_model.set_attn_implementation('sdpa') first."
        )


def _way_out(hf_model: Any) -> str:
    model_type = getattr(hf_model.config, "model_type", None)
    if model_type in FAMILIES:
        return f" regard has a {model_type} of its own: regard.load(the checkpoint's folder)."
    return f" regard has no {model_type} of its own either."


def _vocabulary(hf_model: Any) -> int:
    """Rows of the table of learned embeddings."""
    try:
        weight = getattr(hf_model.get_input_embeddings(), "weight", None)
    except NotImplementedError:
        weight = None
    if isinstance(weight, Tensor) and weight.ndim == 2:
        return len(weight)
    size = getattr(hf_model.config.get_text_config(), "vocab_size", None)
    if not isinstance(size, int):
        raise InputError(
            f"hf_model must have a vocabulary; the config of {type(hf_model).__name__} names none."
        )
    return size


def _first_run(hf_model: Any, vocab_size: int, name: str) -> tuple[dict[str, Any], Any]:
    """What the model is looked at with, and what it makes of that untouched."""
    failed: Exception | None = None
    # One text by itself for those that take no batch, such as a decoder's classifier without a padding token.
    for texts in (2, 1):
        try:
            arguments, result = first_run(hf_model, vocab_size, texts)
        except InputError:
            raise
        # Whatever a model of unknown make raises when it is given tokens and nothing else.
        except Exception as error:
            failed = failed or error
            continue
        if any(bool(value.isnan().any()) for value in _tensors(result) if value.is_floating_point()):
            raise RegardError(
                f"hf_model {name} gives NaN on a few tokens: its weights are damaged, or overflow in their "
                "type."
            )
        return arguments, result
    assert failed is not None
    what, way_out = "token ids alone", ""
    if "decoder_input_ids" in accepted(hf_model) and hf_model.config.is_encoder_decoder:
        what = "a text and a shorter target, by whose lengths the lens tells the encoder from the decoder"
    base = getattr(hf_model, "base_model_prefix", "")
    if base and isinstance(getattr(hf_model, base, None), nn.Module):
        way_out = f" If it is the head that wants more, hand in the model without it: hf_model.{base}."
    raise InputError(
        f"hf_model {name} does not run on {what} ({type(failed).__name__}: {str(failed)[:200]}).{way_out}"
    ) from failed


def _start_id(hf_model: Any) -> int | None:
    for config in (getattr(hf_model, "generation_config", None), hf_model.config):
        value = getattr(config, "decoder_start_token_id", None)
        if isinstance(value, int):
            return value
    return None


def _padding(name: str, mask: Tensor | Mask | None, token_ids: Tensor) -> Tensor | None:
    if mask is None:
        return None
    if isinstance(mask, Mask):
        raise InputError(
            f"{name} must be a bool tensor (batch, positions) through the lens: what else a model masks is "
            f"its own affair; got {type(mask).__name__}."
        )
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != token_ids.shape:
        got = (
            f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        )
        raise InputError(
            f"{name} must be bool of the shape of the token ids, {tuple(token_ids.shape)}, True for a token; "
            f"got {got}. Convert 0/1 with .bool()."
        )
    return mask.long()


def _tensors(result: Any) -> list[Tensor]:
    """Every tensor of an output, caches aside."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, dict):
        return [each for name, value in result.items() if "past" not in name for each in _tensors(value)]
    if isinstance(result, tuple | list):
        return [each for value in result for each in _tensors(value)]
    return []
