"""Edited weights and scores against transformers, whose eager softmax is caught and edited in the same way.

In TransformerLens 4.3 the same edit of an encoder's or encoder-decoder's weights changes nothing at all.
"""

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

import regard
from lens_models import FAMILIES as SEEN
from lens_models import inputs
from parity.conftest import Workshop
from parity.families import ENTRIES, PLAINLY
from regard.core.errors import InputError
from regard.models import Network
from regard.tracing import Edit
from tolerances import PARITY_FP32, WEIGHTS, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")

HEAD, KEY = 1, 2


class CaughtSoftmax(TorchFunctionMode):
    """Edits one of transformers' softmaxes over (batch, heads, queries, keys): the `number`-th of a pass."""

    def __init__(self, number: int, site: str) -> None:
        super().__init__()
        self.number, self.site, self.seen = number, site, 0

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func not in (functional.softmax, torch.softmax, Tensor.softmax) or args[0].ndim != 4:
            return func(*args, **kwargs)
        self.seen += 1
        if self.seen - 1 != self.number:
            return func(*args, **kwargs)
        scores = args[0].clone()
        if self.site == "scores":
            scores[:, HEAD, :, KEY] = -torch.inf
        weights = func(scores, *args[1:], **kwargs).clone()
        if self.site == "weights":
            weights[:, HEAD, :, KEY] = 0.0
        return weights


def places(network: Network) -> list[tuple[Any, int]]:
    """Kind and layer of every softmax of a pass, in order."""
    found: list[tuple[Any, int]] = []
    for kind, prefix in network.prefixes.items():
        for layer in range(network.depth(kind)):
            found.append((kind, layer))
            if f"{prefix}layers.{layer}.cross_attention.weights" in network.tap_names():
                found.append(("cross", layer))
    return found


def theirs(model: Any, given: Mapping[str, Tensor], number: int, site: str) -> Tensor:
    """The last hidden state of the edited pass, or the logits."""
    mode = CaughtSoftmax(number, site)
    with torch.no_grad(), mode:
        output = model(**given)
    assert mode.seen > number
    return last(output)


def last(output: Any) -> Tensor:
    logits = output.get("logits") if hasattr(output, "get") else output.logits
    return output.last_hidden_state if logits is None else logits


def check(
    model: regard.Model, ours: Callable[[regard.Model], Tensor], oracle: Callable[[int, str], Tensor]
) -> None:
    """Every layer of every kind, with its weights and with its scores edited."""
    with torch.no_grad():
        untouched = ours(model)
        for number, (kind, layer) in enumerate(places(model.network)):
            for site in ("weights", "scores"):
                edit: Edit = regard.Zero(site, layer=layer, head=HEAD, key=KEY, kind=kind)  # type: ignore[arg-type]
                edited = model.edited(edit)
                found = ours(edited)
                assert_close_to_largest(found, oracle(number, site), PARITY_FP32)
                moved = float((found - untouched).abs().max() / untouched.abs().max())
                assert moved > 100 * PARITY_FP32, f"{kind} {site} of layer {layer} moved {moved}"
        assert torch.equal(ours(model), untouched)


@pytest.mark.parametrize("name", PLAINLY)
def test_regards_own_families(workshop: Workshop, name: str) -> None:
    saved, batch = workshop.saved(name), ENTRIES[name].inputs("base").all()["plain"]
    given = {"input_ids": batch.token_ids}
    if batch.target_ids is not None:
        given["decoder_input_ids"] = batch.target_ids

    def ours(model: regard.Model) -> Tensor:
        return last(model(batch.token_ids, decoder_token_ids=batch.target_ids))

    check(workshop.model(name), ours, lambda number, site: theirs(saved.model, given, number, site))


@pytest.mark.parametrize(
    ("name", "padding"),
    [*((name, "right") for name in SEEN), *((name, "none") for name in ("bert", "gpt2", "t5"))],
)
def test_through_the_lens(name: str, padding: str) -> None:
    hf_model = SEEN[name]()
    implementation = hf_model.config._attn_implementation
    eager = copy.deepcopy(hf_model)
    eager.set_attn_implementation("eager")
    given = inputs(hf_model, padding=padding)
    mask, target = given["attention_mask"].bool(), given.get("decoder_input_ids")
    real = mask if target is None else torch.ones_like(target, dtype=torch.bool)

    def ours(model: regard.Model) -> Tensor:
        return last(model(given["input_ids"], mask=mask, decoder_token_ids=target))[real]

    check(regard.lens(hf_model), ours, lambda number, site: theirs(eager, given, number, site)[real])
    assert hf_model.config._attn_implementation == implementation
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in hf_model.modules())


def test_threads_do_not_meet_in_the_lens() -> None:
    model = regard.lens(SEEN["bart"]())
    given = inputs(model.network.hf_model, padding="none")  # type: ignore[union-attr]
    edit = regard.Zero("weights", layer=0, head=HEAD, key=KEY, kind="cross")

    def run(edits: bool) -> Tensor:
        used = model.edited(edit) if edits else model
        with torch.no_grad():
            return last(used(given["input_ids"], decoder_token_ids=given["decoder_input_ids"]))

    wanted = {edits: run(edits) for edits in (True, False)}
    assert not torch.equal(wanted[True], wanted[False])
    start = threading.Barrier(2)

    def work(edits: bool) -> bool:
        start.wait()
        return all(torch.equal(run(edits), wanted[edits]) for _ in range(10))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, (True, False))) == [True, True]


@pytest.mark.parametrize("name", ["bert", "gpt2", "gpt_oss", "t5"])
def test_a_trace_through_the_lens_holds_what_was_used(name: str) -> None:
    model = regard.lens(SEEN[name]())
    kind: Any = "cross" if name == "t5" else None
    ids = {"token_ids": [11, 12, 13, 14, 15]} | ({"target_ids": [0, 16, 17]} if name == "t5" else {})
    before = model.trace(**ids)  # type: ignore[call-overload]
    edited = model.edited(regard.Zero("weights", layer=1, head=HEAD, key=KEY, kind=kind))
    after, small = edited.trace(**ids), edited.trace(**ids, keep="qk")  # type: ignore[call-overload]
    wanted = before.weights(1, kind=kind)
    wanted[HEAD, :, KEY] = 0.0
    for trace in (after, small):
        assert (trace.weights(1, kind=kind) - wanted).abs().max() < WEIGHTS
        with pytest.raises(InputError, match="an edit wrote the weights"):
            trace.scores(1, kind=kind)
    after.parity().check(name)
    assert not torch.equal(after.context(1, HEAD, kind=kind), before.context(1, HEAD, kind=kind))


@pytest.mark.parametrize(
    ("name", "down"),
    [
        ("gpt2", "h.1.mlp.c_proj"),
        ("llama", "layers.1.mlp.down_proj"),
        ("bert", "encoder.layer.1.output.dense"),
    ],
)
def test_a_neuron_is_one_of_transformers(name: str, down: str) -> None:
    """A function of one neuron at one position, against a hook before the projection down."""
    hf_model = SEEN[name]()
    module = next(each for path, each in hf_model.named_modules() if path.endswith(down))
    given = inputs(hf_model, padding="none")

    def doubled(module: Any, args: tuple[Tensor]) -> tuple[Tensor]:
        hidden = args[0].clone()
        hidden[:, 2, 3] = 2.0 * hidden[:, 2, 3] + 1.0
        return (hidden,)

    edit = regard.Write("neuron", lambda x: 2.0 * x + 1.0, layer=1, neuron=3, query=2)
    with torch.no_grad():
        before, found = (
            last(each(given["input_ids"]))
            for each in (regard.lens(hf_model), regard.lens(hf_model).edited(edit))
        )
        handle = module.register_forward_pre_hook(doubled)
        wanted = last(hf_model(**given))
        handle.remove()
    assert_close_to_largest(found, wanted, PARITY_FP32)
    assert float((found - before).abs().max()) > 100 * PARITY_FP32
