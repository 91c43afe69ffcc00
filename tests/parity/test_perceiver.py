"""The Perceiver's layers against `transformers`, which builds other models of them."""

from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers.models.perceiver import modeling_perceiver as theirs

from regard.blocks import CrossAttentionLayer, LatentStack
from regard.core import Padding, Taps
from regard.models.families.perceiver import PerceiverConfig, build
from regard.positions import FourierPositions
from tolerances import FP64, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")

D_MODEL, BANDS, LATENTS, D_LATENTS, LENGTH, CROSS = 10, 3, 5, 12, 17, 2
D_INPUT = D_MODEL + 2 * BANDS + 1


def their_model() -> Any:
    config = hf.PerceiverConfig(
        num_latents=LATENTS,
        d_latents=D_LATENTS,
        d_model=D_INPUT,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=3,
        num_cross_attention_heads=CROSS,
        self_attention_widening_factor=5,
        cross_attention_widening_factor=5,
        cross_attention_shape_for_attention="q",
        attn_implementation="eager",
    )
    decoder = theirs.PerceiverBasicDecoder(
        config,
        output_num_channels=D_MODEL,
        output_index_dims=LENGTH,
        num_channels=D_MODEL,
        qk_channels=D_MODEL,
        v_channels=D_MODEL,
        num_heads=CROSS,
        widening_factor=6,
        use_query_residual=True,
        final_project=False,
        trainable_position_encoding_kwargs={"num_channels": D_MODEL, "index_dims": LENGTH},
    )
    model = theirs.PerceiverModel(config, decoder=decoder).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    return model


def our_stack(model: Any) -> LatentStack:
    """The stack of a family, with their weights."""
    config = PerceiverConfig(
        vocab_size=31,
        d_model=D_MODEL,
        num_latents=LATENTS,
        d_latents=D_LATENTS,
        num_layers=2,
        num_heads=3,
        num_cross_heads=CROSS,
        num_bands=BANDS,
        d_ff=60,
        max_seq_len=LENGTH,
    )
    stack = build(config).double().eval().encoder
    assert isinstance(stack, LatentStack)
    encoder, decoder = model.encoder, model.decoder
    pairs = [
        (stack.read, encoder.cross_attention),
        *zip(stack.layers, encoder.self_attends, strict=True),
        (stack.write, decoder.decoding_cross_attention),
    ]
    with torch.no_grad():
        for ours, other in pairs:
            own = other.attention.self
            copies = {"attention.q": own.query, "attention.k": own.key, "attention.v": own.value}
            copies |= {"attention.output": other.attention.output.dense, "ffn.hidden": other.mlp.dense1}
            copies |= {"ffn.output": other.mlp.dense2, "attention_residual.norm": own.layernorm1}
            copies |= {"ffn_residual.norm": other.layernorm}
            if isinstance(ours, CrossAttentionLayer):
                copies["source_norm"] = own.layernorm2
            for name, module in copies.items():
                ours.get_submodule(name).load_state_dict(module.state_dict())
        stack.latents.copy_(model.embeddings.latents)
        stack.queries.weight.copy_(decoder.output_position_encodings.position_embeddings)
    return stack


def test_outputs_latents_weights_and_gradients() -> None:
    model = their_model()
    stack = our_stack(model)
    inputs = torch.randn(2, LENGTH, D_INPUT, dtype=torch.float64, requires_grad=True)
    real = torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH - 6]])
    other = model(inputs, attention_mask=real, output_attentions=True, output_hidden_states=True)
    seen: dict[str, Tensor] = {}
    points = ("read.output", "layers.0.output", "layers.1.output", "read.attention.weights")
    points += ("layers.1.attention.weights", "write.attention.weights")

    def keep(name: str) -> Any:
        return lambda value: seen.__setitem__(name, value.detach())

    queries = stack.queries.weight.expand(2, -1, -1)
    taps = Taps({name: keep(name) for name in points})
    got = stack.ask(inputs, queries, mask=Padding(real), taps=taps)
    assert_close_to_largest(got, other.logits, FP64)
    for name, hidden in zip(points[:3], other.hidden_states, strict=True):
        assert_close_to_largest(seen[name], hidden, FP64)
    read, write = other.cross_attentions
    assert_close_to_largest(seen["read.attention.weights"], read, FP64)
    assert_close_to_largest(seen["layers.1.attention.weights"], other.attentions[1], FP64)
    assert_close_to_largest(seen["write.attention.weights"], write, FP64)
    upstream = torch.randn_like(got)
    ours, expected = (
        torch.autograd.grad(output, [inputs, latents], upstream)
        for output, latents in ((got, stack.latents), (other.logits, model.embeddings.latents))
    )
    for one, wanted in zip(ours, expected, strict=True):
        assert_close_to_largest(one, wanted, FP64)
    # Without listeners it may take another way.
    assert_close_to_largest(stack.ask(inputs, queries, mask=Padding(real)), other.logits, FP64)


@pytest.mark.parametrize("length", [2, 17])
def test_fourier_features(length: int) -> None:
    at = torch.linspace(-1.0, 1.0, length, dtype=torch.float64)[None, :, None]
    expected = theirs.generate_fourier_features(at, BANDS, max_resolution=(length,))[0]
    assert_close_to_largest(FourierPositions(length, BANDS)(torch.arange(length)), expected, 1e-5)
