"""A family against transformers: both run on the same input, and everything that they compute is compared.

`families.py` lists the families. `run_theirs` and `run_ours` run a model, `assert_same_run` compares. The
gradients of transformers are brought to regard's names by loading them like weights: fused and transposed
ones need nothing more.
"""

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import regard
from parity.families_entry import Saved
from parity.families_inputs import Batch, Kind
from parity.families_oracle import as_new, at_full_width
from regard.core import AttentionInputs, Segments, Taps, attention_weights
from tolerances import assert_close_to_largest


@dataclass(kw_only=True, eq=False)
class Run:
    """All that one forward and one backward pass give, stack by stack; gradients by regard's names."""

    logits: Tensor | None
    pooled: Tensor | None
    hidden: dict[str, list[Tensor]]
    weights: dict[str, list[Tensor]]
    gradients: dict[str, Tensor] = field(default_factory=dict)


# --- transformers


def run_theirs(saved: Saved, batch: Batch, *, gradients: bool = True) -> Run:
    """transformers' numbers; a packed row's texts one by one, each with the whole row to itself.

    A model runs on a batch once: what it gave is kept beside it.
    """
    run: Run | None = saved.runs.get(batch)
    if run is None or (gradients and not run.gradients):
        run = saved.runs[batch] = _run_theirs(saved, batch, gradients=gradients)
    return run


def _run_theirs(saved: Saved, batch: Batch, *, gradients: bool) -> Run:
    saved.model.zero_grad()
    with as_new(saved.model), at_full_width(saved.model), torch.set_grad_enabled(gradients):
        if batch.packed:
            run = _joined([_their_pass(saved, text) for text in batch.texts()])
        else:
            run = _their_pass(saved, batch)
        if gradients:
            _loss(run, batch).backward()
    if gradients:
        run.gradients = _by_our_names(saved)
    return run


def _their_pass(saved: Saved, batch: Batch) -> Run:
    given = {
        "input_ids": batch.token_ids,
        "attention_mask": None if batch.mask is None else batch.mask.long(),
        "token_type_ids": batch.token_types,
        "position_ids": batch.positions,
        "decoder_input_ids": batch.target_ids,
        "decoder_attention_mask": None if batch.target_mask is None else batch.target_mask.long(),
    }
    output = saved.model(
        **{name: value for name, value in given.items() if value is not None},
        output_attentions=True,
        output_hidden_states=True,
    )
    if batch.target_ids is None:
        hidden = {saved.shape: list(output.hidden_states)}
        weights = {saved.shape: list(output.attentions)}
    else:
        hidden = {kind: list(output[f"{kind}_hidden_states"]) for kind in ("encoder", "decoder")}
        weights = {kind: list(output[f"{kind}_attentions"]) for kind in ("encoder", "decoder")}
        weights["cross"] = list(output.cross_attentions)
    state = output.get("last_hidden_state")
    if state is not None:
        hidden[list(hidden)[-1]][-1] = state
    return Run(
        logits=output.get("logits"), pooled=output.get("pooler_output"), hidden=hidden, weights=weights
    )


def _joined(runs: list[Run]) -> Run:
    """Several texts as one row: states one after the other, attention in blocks on the diagonal."""
    hidden = {
        kind: [torch.cat(layer, dim=1) for layer in zip(*(run.hidden[kind] for run in runs), strict=True)]
        for kind in runs[0].hidden
    }
    weights = {
        kind: [_on_the_diagonal(layer) for layer in zip(*(run.weights[kind] for run in runs), strict=True)]
        for kind in runs[0].weights
    }
    logits = [run.logits for run in runs if run.logits is not None]
    return Run(
        logits=torch.cat(logits, dim=1) if logits else None, pooled=None, hidden=hidden, weights=weights
    )


def _on_the_diagonal(blocks: tuple[Tensor, ...]) -> Tensor:
    heads = range(blocks[0].shape[1])
    return torch.stack([torch.block_diag(*(block[0, head] for block in blocks)) for head in heads])[None]


def _by_our_names(saved: Saved) -> dict[str, Tensor]:
    """transformers' gradients under regard's names, in regard's shapes."""
    state, trained = saved.model.state_dict(), dict(saved.model.named_parameters(remove_duplicate=False))
    gradients = {}
    for name in saved.stored:
        gradient = trained[name].grad if name in trained else None
        gradients[name] = torch.zeros_like(state[name]) if gradient is None else gradient
    return by_our_names(saved, gradients)


def by_our_names(saved: Saved, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What has the names and shapes of transformers' tensors, under regard's names, in regard's shapes."""
    flat = torch.cat([theirs[name].flatten() for name in sorted(saved.stored)])
    return {name: flat[places] for name, places in _places(saved).items()}


@functools.cache
def _places(saved: Saved) -> dict[str, Tensor]:
    """Where each number of regard's parameters lies among all of transformers': loaded as if a weight.

    So the family's own reading, of fused and transposed tensors too, says which gradient is whose.
    """
    numbers, start = {}, 0
    for name, tensor in sorted(saved.model.state_dict().items()):
        if name in saved.stored:
            count = torch.arange(start, start + tensor.numel(), dtype=torch.float64)
            numbers[name], start = count.reshape(tensor.shape), start + tensor.numel()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_bytes((saved.folder / "config.json").read_bytes())
        save_file(numbers, Path(folder) / "model.safetensors", metadata={"format": "pt"})
        network = regard.load(folder).network
        return {name: parameter.detach().long() for name, parameter in network.named_parameters()}


# --- regard


def run_ours(network: nn.Module, batch: Batch, *, gradients: bool = True) -> Run:
    """regard's numbers, on the fused kernel; the weights from the q and k that it kept."""
    hidden: dict[str, list[Tensor]] = {}
    inputs: dict[str, list[AttentionInputs]] = {}
    taps: dict[str, Callable[[Any], None]] = {}
    for kind, prefix in network.prefixes.items():
        hidden[kind], inputs[kind] = [], []
        for layer in range(network.depth(kind)):
            taps[f"{prefix}layers.{layer}.input"] = hidden[kind].append
            taps[f"{prefix}layers.{layer}.attention.inputs"] = inputs[kind].append
            if kind == "decoder" and len(network.prefixes) == 2:
                listen = inputs.setdefault("cross", []).append
                taps[f"{prefix}layers.{layer}.cross_attention.inputs"] = listen
        taps[f"{prefix}output"] = hidden[kind].append
    network.zero_grad()
    output = network(batch.token_ids, **_arguments(network, batch), taps=Taps(taps))
    with torch.no_grad():
        weights = {kind: [attention_weights(each) for each in inputs[kind]] for kind in inputs}
    # As transformers: its classes with a head give nothing else, and texts in one row have no pooled vector.
    pooled = None if output.logits is not None or batch.packed else output.pooled
    run = Run(logits=output.logits, pooled=pooled, hidden=hidden, weights=weights)
    if gradients:
        _loss(run, batch).backward()
        run.gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return run


def _arguments(network: Any, batch: Batch) -> dict[str, Any]:
    """Where padding stands in front, transformers counts it as positions: so regard is asked to."""
    mask: Any = batch.mask
    positions = {"encoder": batch.positions, "decoder": None}
    for kind, ids, real in (
        ("encoder", batch.token_ids, mask),
        ("decoder", batch.target_ids, batch.target_mask),
    ):
        if real is not None and positions[kind] is None and not real[:, 0].all():
            stack = network.stack(kind if len(network.prefixes) == 2 else next(iter(network.prefixes)))
            positions[kind] = stack.numbering(ids) if stack.embeddings.positions is not None else None
    if batch.packed:
        numbers = [torch.full((length,), number) for number, length in enumerate(batch.packed)]
        mask = Segments(torch.cat(numbers)[None])
    return {
        "mask": mask,
        "token_types": batch.token_types,
        "positions": positions["encoder"],
        "decoder_token_ids": batch.target_ids,
        "decoder_mask": batch.target_mask,
        "decoder_positions": positions["decoder"],
    }


def ours_again(network: nn.Module, batch: Batch) -> Any:
    """The output without taps, which may take other ways through the network."""
    with torch.no_grad():
        return network(batch.token_ids, **_arguments(network, batch))


# --- comparing


def _counted(values: Tensor, run: Run, batch: Batch) -> Tensor:
    """bool, the leading axes of `values`: what concerns tokens. A padded position may hold anything.

    What there is one of for a text an encoder reads off the first position, which may be padding.
    """
    real = batch.real("encoder" if batch.target_ids is None else "decoder")
    if values.ndim == 3 or values.shape == real.shape:  # the latter: ELECTRA's discriminator
        return real
    return torch.ones_like(real[:, 0]) if "decoder" in run.hidden else real[:, 0]


def _loss(run: Run, batch: Batch) -> Tensor:
    """Random factors times everything computed for tokens; without logits, the last hidden state."""
    generator = torch.Generator().manual_seed(11)
    last = run.logits if run.logits is not None else list(run.hidden.values())[-1][-1]
    total = torch.zeros((), dtype=torch.float64)
    for values in (last, run.pooled):
        if values is not None:
            factors = torch.randn(values.shape, generator=generator, dtype=torch.float64)
            total = total + (values.double() * factors)[_counted(values, run, batch)].sum()
    return total


def assert_same_run(ours: Run, theirs: Run, batch: Batch, tol: float, *, gradients: bool = True) -> None:
    """Fail unless all that concerns tokens differs by at most `tol` of the largest entry, tensor by tensor.

    Where a row may attend to nothing transformers has uniform weights, regard none. Only padding has such
    rows, and what padding computes reaches no token.
    """
    for name in ("logits", "pooled"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert (mine is None) == (other is None), f"{name}: one has them, the other has not"
        if other is not None:
            _assert_close(name, mine, other, _counted(other, theirs, batch), tol)
    assert ours.hidden.keys() == theirs.hidden.keys()
    assert ours.weights.keys() == theirs.weights.keys()
    for kind in theirs.hidden:
        assert len(ours.hidden[kind]) == len(theirs.hidden[kind]), f"embedding layers of the {kind}"
        for layer, (mine, other) in enumerate(zip(ours.hidden[kind], theirs.hidden[kind], strict=True)):
            _assert_close(f"{kind}, embedding layer {layer}", mine, other, batch.real(_kind(kind)), tol)
    for kind in theirs.weights:
        assert len(ours.weights[kind]) == len(theirs.weights[kind]), f"attention layers, {kind}"
        real = batch.real("decoder" if kind == "cross" else _kind(kind))
        for layer, (mine, other) in enumerate(zip(ours.weights[kind], theirs.weights[kind], strict=True)):
            _assert_close(
                f"{kind}, attention layer {layer}", mine.transpose(1, 2), other.transpose(1, 2), real, tol
            )
    if gradients:
        assert_same_gradients(ours, theirs, tol)


def _kind(name: str) -> Kind:
    return "decoder" if name == "decoder" else "encoder"


def _assert_close(what: str, ours: Tensor, theirs: Tensor, real: Tensor, tol: float) -> None:
    assert ours.shape == theirs.shape, f"{what}: shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}"
    try:
        assert_close_to_largest(ours[real], theirs[real], tol)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None


def assert_same_gradients(ours: Run, theirs: Run, tol: float) -> None:
    """Fail unless both trained the same parameters, each gradient within `tol` of its measure."""
    assert any(gradient.any() for gradient in theirs.gradients.values())
    assert ours.gradients.keys() <= theirs.gradients.keys()
    for name, other in theirs.gradients.items():
        mine = ours.gradients.get(name, torch.zeros_like(other))
        assert mine.isfinite().all(), name
        apart = (mine.double() - other.double()).abs().max().item()
        measure = max(theirs.gradients[like].abs().max().item() for like in _measures(name, theirs.gradients))
        assert apart <= tol * measure, f"gradient of {name}: {apart:g} apart, allowed {tol * measure:g}"


def _measures(name: str, gradients: Mapping[str, Tensor]) -> list[str]:
    """The parameters whose largest gradient is the measure for this one: itself, for scores also the values.

    Gradients of what only decides the weights (q, k, their norms, biases) are differences between weights
    that sum to one. They cancel to little, to nothing for one token or a key's bias; what is left is rounding
    of the size that the values' gradients have.
    """
    measures = [name]
    head, found, tail = name.partition("attention.")
    if found and not tail.startswith(("v.", "output.")):
        measures.append(f"{head}{found}v.weight")
    elif "attention_residual." in name:  # one token: its norm before the queries of cross-attention
        measures.append(f"{name.partition('_residual.')[0]}.v.weight")
    elif not found and (".bias." in name or "relative" in name):  # for all layers of a stack
        stack = name.split(".")[0]
        measures += [
            like for like in gradients if like.startswith(f"{stack}.") and like.endswith("attention.v.weight")
        ]
    return measures
