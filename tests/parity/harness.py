"""A family against transformers: its own class built tiny, with random weights and sizes that all differ.

A transformers model is saved, loaded by `regard.load`, and both are run on the same input; `assert_same_run`
compares everything that they compute.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import regard
from regard.core import AttentionInputs, Taps, attention_weights
from tolerances import assert_close_to_largest

LAYERS, HEADS, HEAD_DIM, D_FF, MAX_LEN, VOCAB, TYPES = 2, 3, 7, 37, 23, 53, 5
D_MODEL = HEADS * HEAD_DIM


@dataclass(frozen=True, kw_only=True)
class FamilyUnderTest:
    """How transformers builds a family tiny.

    Args:
        name: `model_type`.
        config: makes the configuration; keyword arguments are fields by their names on disk.
        model: transformers' encoder.
        masked_lm: transformers' encoder with the head for masked words.
        head_prefix: how that head's tensors begin.
        activation_field, eps_field: how the configuration calls these; None where it has none.
        num_token_types: rows of the table of token types.
    """

    name: str
    config: Callable[..., Any]
    model: type
    masked_lm: type
    head_prefix: str
    activation_field: str
    num_token_types: int


def _bert_config(**fields: Any) -> Any:
    # norm_eps, dropout and token types differ from every default: a field that is not read shows.
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": D_MODEL,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": D_FF,
        "max_position_embeddings": MAX_LEN,
        "type_vocab_size": TYPES,
        "layer_norm_eps": 1e-3,
        "hidden_dropout_prob": 0.3,
        "attention_probs_dropout_prob": 0.4,
    }
    return transformers.BertConfig(**(sizes | fields))


def _distilbert_config(**fields: Any) -> Any:
    sizes = {
        "vocab_size": VOCAB,
        "dim": D_MODEL,
        "n_layers": LAYERS,
        "n_heads": HEADS,
        "hidden_dim": D_FF,
        "max_position_embeddings": MAX_LEN,
        "dropout": 0.3,
        "attention_dropout": 0.4,
    }
    return transformers.DistilBertConfig(**(sizes | fields))


BERT = FamilyUnderTest(
    name="bert",
    config=_bert_config,
    model=transformers.BertModel,
    masked_lm=transformers.BertForMaskedLM,
    head_prefix="cls.",
    activation_field="hidden_act",
    num_token_types=TYPES,
)
DISTILBERT = FamilyUnderTest(
    name="distilbert",
    config=_distilbert_config,
    model=transformers.DistilBertModel,
    masked_lm=transformers.DistilBertForMaskedLM,
    head_prefix="vocab_",
    activation_field="activation",
    num_token_types=0,
)


def build(cls: type, config: Any, *, seed: int = 0, dtype: torch.dtype = torch.float32, **kwargs: Any) -> Any:
    """A transformers model in evaluation mode, eager attention, every parameter drawn anew.

    Its own initialisation has zero biases, norms of one and weights so small that attention is uniform: it
    would hide most faults. The embeddings stay small instead, so that the norm's epsilon shows.
    """
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = cls(config, **kwargs).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            if "LayerNorm.weight" in name or "layer_norm.weight" in name:
                parameter.copy_(1.0 + 0.3 * noise)
            elif "embeddings.weight" in name:
                parameter.copy_(0.01 * noise)
            else:
                parameter.copy_(0.3 * noise)
    return model.to(dtype)


def save(model: Any, folder: Path, **kwargs: Any) -> Path:
    """Write a model as transformers does."""
    model.save_pretrained(folder, **kwargs)
    return folder


@dataclass(frozen=True, kw_only=True)
class Batch:
    """An input of both: ids, where there is a token, and token types."""

    token_ids: Tensor
    mask: Tensor | None = None
    token_types: Tensor | None = None

    @property
    def real(self) -> Tensor:
        """bool (batch, N): True where there is a token."""
        return torch.ones_like(self.token_ids, dtype=torch.bool) if self.mask is None else self.mask


def batches(num_token_types: int) -> dict[str, Batch]:
    """Every kind of input. Padding holds ids of its own, never 0: what is masked must not matter.

    transformers never trains row 0, which pads; regard does, where it is given as a token. So it is not.
    """
    generator = torch.Generator().manual_seed(7)

    def ids(batch: int, length: int) -> Tensor:
        return torch.randint(1, VOCAB, (batch, length), generator=generator)

    def types(batch: int, length: int) -> Tensor:
        return torch.randint(0, num_token_types, (batch, length), generator=generator)

    position = torch.arange(13)
    lengths = torch.tensor([13, 2, 7, 1, 11])
    right = position < lengths[:, None]
    holes = torch.rand(5, 13, generator=generator) < 0.5
    holes[:, 0] = True
    made = {
        "plain": Batch(token_ids=ids(1, 11)),
        "one-token": Batch(token_ids=ids(1, 1)),
        "longest": Batch(token_ids=ids(1, MAX_LEN)),
        "batch": Batch(token_ids=ids(5, 13)),
        "mask-of-ones": Batch(token_ids=ids(5, 13), mask=torch.ones(5, 13, dtype=torch.bool)),
        "right-padded": Batch(token_ids=ids(5, 13), mask=right),
        "left-padded": Batch(token_ids=ids(5, 13), mask=right.flip(1)),
        "holes": Batch(token_ids=ids(5, 13), mask=holes),
    }
    if num_token_types:
        pair = torch.tensor([[0] * 6 + [1] * 5])
        made["pair"] = Batch(token_ids=ids(1, 11), token_types=pair)
        made["all-types-padded"] = Batch(token_ids=ids(5, 13), mask=right, token_types=types(5, 13))
    return made


@dataclass(kw_only=True)
class Run:
    """All that one forward and one backward pass give."""

    last_hidden_state: Tensor
    pooled: Tensor | None
    hidden: list[Tensor]
    weights: list[Tensor]
    gradients: dict[str, Tensor] = field(default_factory=dict)


def _loss(last_hidden_state: Tensor, pooled: Tensor | None, real: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(11)
    r = torch.randn(last_hidden_state.shape, generator=generator, dtype=torch.float64)
    loss = (last_hidden_state.double() * r * real[..., None]).sum()
    if pooled is not None:
        r = torch.randn(pooled.shape, generator=generator, dtype=torch.float64)
        loss = loss + (pooled.double() * r * real[:, :1]).sum()
    return loss


def run_theirs(model: Any, batch: Batch) -> Run:
    """transformers' numbers, gradients by its own names."""
    arguments = {"input_ids": batch.token_ids}
    if batch.mask is not None:
        arguments["attention_mask"] = batch.mask.long()
    if batch.token_types is not None:
        arguments["token_type_ids"] = batch.token_types
    model.zero_grad()
    output = model(**arguments, output_attentions=True, output_hidden_states=True)
    pooled = getattr(output, "pooler_output", None)
    _loss(output.last_hidden_state, pooled, batch.real).backward()
    return Run(
        last_hidden_state=output.last_hidden_state.detach(),
        pooled=None if pooled is None else pooled.detach(),
        hidden=[hidden.detach() for hidden in output.hidden_states],
        weights=[weights.detach() for weights in output.attentions],
        gradients={name: p.grad for name, p in model.named_parameters() if p.grad is not None},
    )


def run_ours(model: regard.Model, batch: Batch) -> Run:
    """regard's numbers, on the fused kernel; the weights from the q and k that it kept."""
    from regard.models import family_of

    network, keys = model.network, family_of(model.loaded.family).keys
    layers = len(network.layers)
    hidden: dict[int, Tensor] = {}
    inputs: dict[int, AttentionInputs] = {}
    taps: dict[str, Callable[[Any], None]] = {}
    for layer in range(layers):
        taps[f"layers.{layer}.input"] = _keep(hidden, layer)
        taps[f"layers.{layer}.attention.inputs"] = _keep(inputs, layer)
    network.zero_grad()
    output = network(batch.token_ids, mask=batch.mask, token_types=batch.token_types, taps=Taps(taps))
    _loss(output.last_hidden_state, output.pooled, batch.real).backward()
    with torch.no_grad():
        weights = [attention_weights(inputs[layer]) for layer in range(layers)]
    return Run(
        last_hidden_state=output.last_hidden_state.detach(),
        pooled=None if output.pooled is None else output.pooled.detach(),
        hidden=[*(hidden[layer].detach() for layer in range(layers)), output.last_hidden_state.detach()],
        weights=weights,
        gradients={keys.to_hf(name): p.grad for name, p in network.named_parameters() if p.grad is not None},
    )


def _keep(store: dict[int, Any], key: int) -> Callable[[Any], None]:
    def keep(value: Any) -> None:
        store[key] = value

    return keep


def assert_same_run(ours: Run, theirs: Run, tol: float, *, gradients: bool = True) -> None:
    """Fail unless everything differs by at most `tol` of the largest entry, tensor by tensor."""
    assert len(ours.hidden) == len(theirs.hidden)
    assert len(ours.weights) == len(theirs.weights)
    assert_close_to_largest(ours.last_hidden_state, theirs.last_hidden_state, tol)
    assert (ours.pooled is None) == (theirs.pooled is None)
    if theirs.pooled is not None:
        assert_close_to_largest(ours.pooled, theirs.pooled, tol)
    for mine, other in zip(ours.hidden, theirs.hidden, strict=True):
        assert_close_to_largest(mine, other, tol)
    for mine, other in zip(ours.weights, theirs.weights, strict=True):
        assert_close_to_largest(mine, other, tol)
    if gradients:
        assert_same_gradients(ours, theirs, tol)


def assert_same_gradients(ours: Run, theirs: Run, tol: float) -> None:
    """Fail unless both trained the same parameters, each gradient within `tol` of its measure."""
    assert theirs.gradients
    assert ours.gradients.keys() == theirs.gradients.keys()
    for name, other in theirs.gradients.items():
        assert ours.gradients[name].isfinite().all(), name
        apart = (ours.gradients[name].double() - other.double()).abs().max().item()
        measure = max(theirs.gradients[like].abs().max().item() for like in _measures(name))
        assert apart <= tol * measure, f"gradient of {name}: {apart:g} apart, allowed {tol * measure:g}"


def _measures(name: str) -> list[str]:
    """The parameters whose largest gradient is the measure for this one: itself, and for q and k also v.

    Gradients of q and k are differences between weights that sum to one. They cancel to little, to nothing
    for one token or a key's bias; what is left is rounding of the size that v's have.
    """
    for query_or_key in (".query.", ".key.", ".q_lin.", ".k_lin."):
        if query_or_key in name:
            return [name, name.replace(query_or_key, ".value." if "y." in query_or_key else ".v_lin.")]
    return [name]


def permute_heads(linear: nn.Linear) -> None:
    """Give head h the rows of head h + 1."""
    with torch.no_grad():
        for parameter in (linear.weight, linear.bias):
            parameter.copy_(parameter.roll(HEAD_DIM, dims=0).clone())
