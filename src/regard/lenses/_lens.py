"""A transformers model as a `regard.models.Network`: the model's own forward pass, listened to."""

from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.checkpoints import Source
from regard.core import Mask, Taps
from regard.core.errors import CheckpointError, InputError, RegardError
from regard.lenses import _implementations
from regard.lenses._implementations import configs_of
from regard.lenses._look import check_mode, check_model, look_at, quiet
from regard.lenses._run import Run
from regard.lenses._survey import accepted, main_output
from regard.models import (
    Input,
    Kind,
    Loaded,
    Network,
    Output,
    Parity,
    Projection,
    StackKind,
    Unembedding,
    attention_name,
    stack_of,
)
from regard.text import SpecialIds, Tokenizer


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
        check_model(hf_model)
        _implementations.register()
        self.hf_model = hf_model
        self.training = False  # as the model is: checked above
        self.foreign = type(hf_model).__name__
        self._accepted = accepted(hf_model)
        self._configs = configs_of(hf_model)
        self._look = look_at(hf_model, self._configs)
        self.spares_logits = not self._look.has_logits or "logits_to_keep" in self._accepted
        self.config, self.layout, self.parity = self._look.config, self._look.layout, self._look.parity
        self.prefixes = self.layout.prefixes
        self.start_id = _start_id(hf_model) if len(self.prefixes) == 2 else None
        # Once: a trace asks for them at every call.
        self._tap_names = (*self.layout.tap_names(), *(["logits"] if self._look.has_logits else []))

    def depth(self, kind: StackKind) -> int:
        """Attention layers of a stack."""
        return self.layout.depth(kind)

    def limit(self, kind: StackKind) -> int | None:
        """The rows of a stack's table of positions; None where none was seen."""
        return self.layout.limits.get(kind)

    def tap_names(self) -> list[str]:
        """Every point that was found, in the order of the forward pass."""
        return list(self._tap_names)

    def stack(self, kind: StackKind) -> None:
        """None: the layers are transformers' own."""

    def shares_a_pass(self, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        """Where the model ran on two texts at once, those of the same lengths."""
        return self._look.takes_batches and one == other

    def projection(self, kind: Kind, layer: int) -> Projection | None:
        """From the heads of a layer to its output, where a module was given the joined heads, bit for bit."""
        return self.layout.projection(f"{self.prefixes[stack_of(kind)]}layers.{layer}.{attention_name(kind)}")

    def final_norm(self, kind: StackKind) -> nn.Module | None:
        """The module between the last layer and the stack's output, if it was seen to be just that."""
        return self._look.norms[kind]

    @property
    def has_vocabulary_head(self) -> bool:
        """Whether the model names an output layer over its vocabulary and gives logits."""
        return self._look.has_logits and self.hf_model.get_output_embeddings() is not None

    def unembedding(self) -> Unembedding | None:
        """The output layer, where it was seen to make the logits of the last hidden state by itself."""
        head = self._look.head
        if head is None:
            return None
        bias = None if head.bias is None else head.bias.detach()
        return Unembedding(weight=head.weight.detach(), bias=bias)

    def readout(self, state: Tensor, *, normed: bool) -> Tensor | None:
        """None: what lies between the last layer and the logits is transformers' own."""
        return None

    def _run(
        self, first: Input, second: Input | None, token_types: Tensor | None, logits: bool, taps: Taps | None
    ) -> Output:
        """Masks are bool tensors here, of which the model makes its own."""
        check_mode(self.hf_model)
        arguments: dict[str, Any] = {"input_ids": first.ids}
        self._add(arguments, "attention_mask", "mask", _padding("mask", first))
        self._add(arguments, "token_type_ids", "token_types", token_types)
        self._add(arguments, "position_ids", "positions", first.positions)
        if second is not None:
            arguments["decoder_input_ids"] = second.ids
            padding = _padding("decoder_mask", second)
            self._add(arguments, "decoder_attention_mask", "decoder_mask", padding)
            self._add(arguments, "decoder_position_ids", "decoder_positions", second.positions)
        if not logits and "logits_to_keep" in self._accepted:
            arguments["logits_to_keep"] = 1
        ends: dict[str, Tensor] = {}
        seen = {f"{prefix}output": partial(ends.__setitem__, kind) for kind, prefix in self.prefixes.items()}
        listeners = Taps(seen) if taps is None else taps.then(Taps(seen))
        with Run(self.layout, listeners, len(first.ids)).listening(self._configs):
            result = self.hf_model(**arguments, **quiet(self._accepted))
        return self._output(result, ends, logits, taps)

    def _add(self, arguments: dict[str, Any], theirs: str, ours: str, value: Tensor | None) -> None:
        if value is None:
            return
        if theirs not in self._accepted:
            raise InputError(f"{ours} must be None: {self.foreign} takes no {theirs}.")
        arguments[theirs] = value

    def _output(self, result: Any, ends: dict[str, Tensor], logits: bool, taps: Taps | None) -> Output:
        last = ends.get(list(self.prefixes)[-1])
        if last is None:
            last = main_output(result)
        if last is None:
            raise RegardError(f"{self.foreign} gives no last hidden state; hand in its base model instead.")
        encoded = ends.get("encoder")
        if encoded is None and "encoder" in self.prefixes:
            encoded = result.get("encoder_last_hidden_state", last if len(self.prefixes) == 1 else None)
        scores = result.get("logits") if logits else None
        if scores is not None and taps is not None:
            scores = taps.offer("logits", scores)
        pooled = result.get("pooler_output")
        return Output(
            last_hidden_state=last,
            logits=scores,
            pooled=pooled if isinstance(pooled, Tensor) else None,
            encoder_state=encoded,
            decoder_state=last if "decoder" in self.prefixes else None,
        )


def _start_id(hf_model: Any) -> int | None:
    for config in (getattr(hf_model, "generation_config", None), hf_model.config):
        value = getattr(config, "decoder_start_token_id", None)
        if isinstance(value, int):
            return value
    return None


def _padding(name: str, given: Input) -> Tensor | None:
    mask, token_ids = given.mask, given.ids
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


def lens(hf_model: Any, tokenizer: Any = None, *, name: str | None = None) -> Loaded:
    """Look at any transformers model that calls attention through transformers' registry.

    `regard.lens` says what it takes, and what it refuses.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2Model
        >>> gpt2 = GPT2Model(GPT2Config(vocab_size=31, n_embd=6, n_layer=2, n_head=3, n_positions=17)).eval()
        >>> network = lens(gpt2).network
        >>> network.depth("decoder"), network.parity.output
        (2, 0.0)
        >>> seen = []
        >>> from regard.core import Taps
        >>> taps = Taps({"layers.1.attention.weights": seen.append})
        >>> network(torch.tensor([[3, 1, 4]]), taps=taps).last_hidden_state.shape, seen[0].shape
        (torch.Size([1, 3, 6]), torch.Size([1, 3, 3, 3]))
    """
    network = LensNetwork(hf_model)
    shown = name or getattr(hf_model, "name_or_path", "") or type(hf_model).__name__
    read = _read_tokenizer(tokenizer)
    try:
        read = None if read is None else read.within(network.config.vocab_size)
    except CheckpointError as error:  # of an argument here, not of a file
        raise InputError(f"tokenizer must belong to hf_model: {error}") from error
    return Loaded(
        network=network,
        tokenizer=read,
        source=Source(name=shown, folder=Path(shown), kind="transformers"),
        family=str(hf_model.config.model_type),
        left_out=(),
    )


def _read_tokenizer(tokenizer: Any) -> Tokenizer | None:
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        raise InputError(
            "tokenizer must be a fast one, from transformers or tokenizers; got "
            f"{type(tokenizer).__name__}. Load it with AutoTokenizer.from_pretrained(..., use_fast=True)."
        )
    named = {each.name: getattr(tokenizer, f"{each.name}_token", None) for each in fields(SpecialIds)}
    known = {role: str(piece) for role, piece in named.items() if piece in backend.get_vocab()}
    return Tokenizer.from_str(backend.to_str(), roles=known)
