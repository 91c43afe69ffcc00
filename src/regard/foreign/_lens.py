"""A transformers model as a `regard.models.Network`: its own forward pass, listened to at its taps."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.checkpoints import Source
from regard.core import Mask, Taps, reference_attention
from regard.core.errors import CheckpointError, InputError, RegardError
from regard.foreign import _implementations
from regard.foreign._implementations import Call, configs_of, listening, listens
from regard.foreign._look import check_mode, check_model, look_at, placeholders, quiet
from regard.foreign._points import OF_ATTENTION, Layout, Point, Site
from regard.foreign._survey import (
    Execution,
    Masks,
    accepted,
    main_input,
    main_output,
    read_inputs,
    with_main_input,
    with_main_output,
)
from regard.models import (
    Input,
    Kind,
    Loaded,
    Network,
    Output,
    Parity,
    Projection,
    Reader,
    StackKind,
    Unembedding,
    attention_name,
    stack_of,
)
from regard.text import SpecialIds, Tokenizer, template_of


class Run:
    """Listens to one forward pass over `batch` rows of tokens."""

    def __init__(self, layout: Layout, taps: Taps, batch: int = 1) -> None:
        self._taps = taps
        self._batch = batch
        self._masks = Masks()
        # Sites by the execution in which they were seen; what is left at the end was not called.
        self._sites = {site.execution: site for site in layout.sites}
        self._left = set(self._sites)
        self._counts: dict[nn.Module, int] = defaultdict(int)
        # Input and output of a module are counted apart: hooks of either may be missing.
        self._executed: dict[tuple[nn.Module, str], int] = defaultdict(int)
        self._points: dict[nn.Module, dict[tuple[int, str], list[Point]]] = {}
        # Hooks only on modules at which somebody listens.
        for point in layout.points.values():
            if taps.wants(point.name):
                at = (point.execution.occurrence, point.side)
                self._points.setdefault(point.execution.module, {}).setdefault(at, []).append(point)

    @contextmanager
    def listening(self, configs: list[Any]) -> Iterator[None]:
        """For the time of the forward pass; everything is put back at the end, also after an exception."""
        # All hooks are taken off, also where the pass fails half way.
        handles = []
        try:
            for module, points in self._points.items():
                sides = {side for _, side in points}
                if "input" in sides:
                    handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
                if "output" in sides:
                    handles.append(module.register_forward_hook(self._after))
            with listening(configs, self):
                yield
        finally:
            for handle in handles:
                handle.remove()
        # The model went another way than on the first look: layers would be missing.
        if self._left:
            missing = ", ".join(sorted(self._sites[key].name for key in self._left))
            raise RegardError(
                f"the model ran without calling {missing}, which it called on the first look: it attends "
                "otherwise on this input, so nothing is shown."
            )

    def mask_made(self, values: Tensor, mask: Mask | None) -> None:
        """See `Listener`."""
        self._masks.mask_made(values, mask)

    def attention(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """See `Listener`."""
        site = self._next(call.module)
        taps = self._taps.at(site.name)
        wanted = {name for name in OF_ATTENTION if taps.wants(name)}
        # Nobody listens here: the call is untouched.
        if not wanted:
            return call.original()
        # What is written to q, k or v goes into the model's own kernel.
        if not wanted.isdisjoint("qkv"):
            q, k, v = taps.offer("q", call.q), taps.offer("k", call.k), taps.offer("v", call.v)
            call = replace(call, q=q, k=k, v=v)
        # Scores and weights are in no kernel: they are worked out beside it.
        step_by_step = "scores" in wanted or "weights" in wanted
        inputs = None
        if step_by_step or "inputs" in wanted:
            inputs = read_inputs(call, self._masks)
            taps.offer_readonly("inputs", inputs)
        context, weights = call.original()
        # The kernel first: its result stands unless somebody writes.
        if step_by_step:
            assert inputs is not None
            watch = _Watch(taps)
            written = reference_attention(inputs, watch.listeners())
            # Looking alone leaves the kernel's own result, bit for bit.
            if watch.written:
                # transformers has (batch, queries, heads, v_dim).
                context = written.context.transpose(1, 2).contiguous()
                if weights is not None:
                    # A sink's weight is a column more, which the model's own weights lack.
                    weights = written.weights[..., : call.k.shape[2]].to(weights.dtype)
        # (batch, heads, queries, v_dim), as taps have it.
        if "context" in wanted:
            by_head = context.transpose(1, 2)
            offered = taps.offer("context", by_head)
            # Only what was written goes back.
            if offered is not by_head:
                context = offered.transpose(1, 2).contiguous()
        return context, weights

    def _next(self, module: nn.Module) -> Site:
        key = Execution(module, self._counts[module])
        self._counts[module] += 1
        if key not in self._sites:
            raise RegardError(
                f"{type(module).__name__} called attention {key.occurrence + 1} times, which it did not on "
                "the first look: the model attends otherwise on this input, so nothing is shown."
            )
        self._left.discard(key)
        return self._sites[key]

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        if kwargs is None:  # a pass of another thread; see `_Watcher.enter`
            return None
        # None where nobody listens at this execution.
        points = self._points_at(module, "input")
        value = main_input(args, kwargs) if points else None
        offered = None if value is None else self._offer(points, value)
        return None if offered is None or offered is value else with_main_input(args, kwargs, offered)

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        points = self._points_at(module, "output")
        value = main_output(output) if points else None
        offered = None if value is None else self._offer(points, value)
        return None if offered is None or offered is value else with_main_output(output, offered)

    def _points_at(self, module: nn.Module, side: Literal["input", "output"]) -> list[Point]:
        """The taps at this execution of a module; none of a pass of another thread."""
        if not listens(self):
            return []
        count = self._executed[module, side]
        self._executed[module, side] += 1
        return self._points[module].get((count, side), [])

    def _offer(self, points: list[Point], value: Tensor) -> Tensor:
        is_flat = points[0].is_flat
        if is_flat:
            # Some modules get (batch x positions, size): taps see (batch, positions, size).
            value = value.view(self._batch, -1, value.shape[-1])
        for point in points:
            value = self._taps.offer(point.name, value)
        return value.flatten(0, 1) if is_flat else value


class _Watch:
    """Taps at scores and weights that know whether anything was written."""

    def __init__(self, taps: Taps) -> None:
        self.written = False
        self._taps = taps

    def listeners(self) -> Taps:
        """At scores and weights; see `Listening.taps` for why they are not kept."""
        wanted = (name for name in ("scores", "weights") if self._taps.wants(name))
        return Taps({name: partial(self._listen, name) for name in wanted})

    def _listen(self, name: str, value: Tensor) -> Tensor:
        # Inference tensors count no versions; a listener may write in place all the same.
        before = value.clone() if value.is_inference() else value._version
        offered = self._taps.offer(name, value)
        # Written in place, or another tensor was given back.
        in_place = not torch.equal(before, value) if isinstance(before, Tensor) else before != value._version
        self.written = self.written or in_place or offered is not value
        return offered


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
        # Refused before anything of the model is touched.
        check_model(hf_model)
        _implementations.register()
        self.hf_model = hf_model
        self.training = False  # as the model is: checked above
        self.foreign = type(hf_model).__name__
        self._accepted = accepted(hf_model)
        self._configs = configs_of(hf_model)
        # Ids of images and sounds, which cannot be given here.
        self._placeholders = placeholders(self._configs)
        self._look = look_at(hf_model, self._configs)
        # The logits of all positions are only made where somebody wants them.
        self.spares_logits = not self._look.has_logits or "logits_to_keep" in self._accepted
        self.config, self.layout, self.parity = self._look.config, self._look.layout, self._look.parity
        self.prefixes = self.layout.prefixes
        # Only an encoder-decoder needs a token to start with.
        self.start_id = _start_id(hf_model) if len(self.prefixes) == 2 else None
        # Worked out once: a trace asks for them at every call.
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

    def readers(self, kind: Kind, layer: int) -> tuple[Reader, ...] | None:
        """Where linear layers on the layer's input, perhaps normed, were seen to make them."""
        found = self._look.readers.get((kind, layer))
        return None if found is None else found()

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
        # The user may have called train() since.
        check_mode(self.hf_model)
        if self._placeholders:
            self._check_placeholders(first.ids)
        arguments: dict[str, Any] = {"input_ids": first.ids}
        self._add(arguments, "attention_mask", "mask", _padding("mask", first))
        self._add(arguments, "token_type_ids", "token_types", token_types)
        self._add(arguments, "position_ids", "positions", first.positions)
        if second is not None:
            arguments["decoder_input_ids"] = second.ids
            padding = _padding("decoder_mask", second)
            self._add(arguments, "decoder_attention_mask", "decoder_mask", padding)
            self._add(arguments, "decoder_position_ids", "decoder_positions", second.positions)
        # One position, which is the least that transformers takes.
        if not logits and "logits_to_keep" in self._accepted:
            arguments["logits_to_keep"] = 1
        ends: dict[str, Tensor] = {}
        # The outputs of stacks are listened to by every pass.
        seen = {f"{prefix}output": partial(ends.__setitem__, kind) for kind, prefix in self.prefixes.items()}
        listeners = Taps(seen) if taps is None else taps.then(Taps(seen))
        with Run(self.layout, listeners, len(first.ids)).listening(self._configs):
            result = self.hf_model(**arguments, **quiet(self._accepted))
        return self._output(result, ends, logits, taps)

    def _check_placeholders(self, token_ids: Tensor) -> None:
        known = torch.tensor([*self._placeholders], device=token_ids.device)
        if len(held := token_ids[torch.isin(token_ids, known)]):
            name = self._placeholders[int(held[0])]
            raise InputError(
                f"token_ids hold {int(held[0])}, the {name} of {self.foreign}, which stands for an image or "
                "a sound that the model does not get through the lens: leave it out, here and in the text."
            )

    def _add(self, arguments: dict[str, Any], theirs: str, ours: str, value: Tensor | None) -> None:
        if value is None:
            return
        if theirs not in self._accepted:
            raise InputError(f"{ours} must be None: {self.foreign} takes no {theirs}.")
        arguments[theirs] = value

    def _output(self, result: Any, ends: dict[str, Tensor], logits: bool, taps: Taps | None) -> Output:
        # The last stack's output; where it was not seen, what the model names as such.
        last = ends.get(list(self.prefixes)[-1])
        if last is None:
            last = main_output(result)
        if last is None:
            raise RegardError(f"{self.foreign} gives no last hidden state; hand in its base model instead.")
        encoded = ends.get("encoder")
        if encoded is None and "encoder" in self.prefixes:
            # Where the encoder's end was not seen: as the model returns it, or the only output that
            # there is.
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
    # The settings for writing go before the config.
    for config in (getattr(hf_model, "generation_config", None), hf_model.config):
        value = getattr(config, "decoder_start_token_id", None)
        if isinstance(value, int):
            return value
    return None


def _padding(name: str, given: Input) -> Tensor | None:
    mask, token_ids = given.mask, given.ids
    if mask is None:
        # A mask of regard's is an object; the model makes its own from padding.
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
    # transformers wants 0 and 1.
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
    # As the user says, else where it came from, else its class.
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
    # A fast tokenizer of transformers holds one of the tokenizers library.
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str"):
        raise InputError(
            "tokenizer must be a fast one, from transformers or tokenizers; got "
            f"{type(tokenizer).__name__}. Load it with AutoTokenizer.from_pretrained(..., use_fast=True)."
        )
    named = {each.name: getattr(tokenizer, f"{each.name}_token", None) for each in fields(SpecialIds)}
    # Only roles whose piece is in the vocabulary.
    known = {role: str(piece) for role, piece in named.items() if piece in backend.get_vocab()}
    template = template_of(getattr(tokenizer, "chat_template", None), "tokenizer")
    return Tokenizer.from_str(backend.to_str(), roles=known, chat_template=template)
