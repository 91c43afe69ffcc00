"""The encoder-decoder of "Attention is all you need", written, as transformers reads and runs it."""

from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

from regard.models import new_network, write_checkpoint
from regard.models.families.bart import original_transformer
from regard.positions import sinusoidal_encoding
from tolerances import FP64, PARITY_FP32, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")

CONFIG = original_transformer(vocab_size=53, d_model=22, num_layers=2, num_heads=2, d_ff=37, max_seq_len=29)


def test_transformers_loads_it_to_equal_logits(tmp_path: Path) -> None:
    network = new_network(CONFIG, seed=3).eval()
    folder = write_checkpoint(network, tmp_path / "out")
    theirs, report = transformers.MarianMTModel.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    source, target = torch.randint(2, 53, (3, 11)), torch.randint(2, 53, (3, 7))
    with torch.no_grad():
        ours = network(source, decoder_token_ids=target).logits
        assert_close_to_largest(ours, theirs(input_ids=source, decoder_input_ids=target).logits, PARITY_FP32)


def test_it_is_the_paper_s_network() -> None:
    """torch's own, post-norm with ReLU, on the scaled table plus sinusoids, times the table."""
    network = new_network(CONFIG, seed=3).eval().double()
    table = network.encoder.embeddings.tokens.weight
    assert table is network.decoder.embeddings.tokens.weight is network.head.output.weight
    oracle = nn.Transformer(22, 2, 2, 2, 37, 0.0, "relu", batch_first=True, dtype=torch.float64)
    oracle.encoder.norm = oracle.decoder.norm = None
    for ours, theirs in (
        *zip(network.encoder.layers, oracle.encoder.layers, strict=True),
        *zip(network.decoder.layers, oracle.decoder.layers, strict=True),
    ):
        pairs = [(ours.attention, theirs.self_attn, ours.attention_residual)]
        if hasattr(ours, "cross_attention"):
            pairs.append((ours.cross_attention, theirs.multihead_attn, ours.cross_attention_residual))
        norms = [theirs.norm1, theirs.norm2, getattr(theirs, "norm3", None)]
        for number, (mine, other, residual) in enumerate(pairs):
            other.in_proj_weight.data = torch.cat([each.weight for each in (mine.q, mine.k, mine.v)])
            other.in_proj_bias.data = torch.cat([each.bias for each in (mine.q, mine.k, mine.v)])
            other.out_proj.load_state_dict(mine.output.state_dict())
            norms[number].load_state_dict(residual.norm.state_dict())
        norms[len(pairs)].load_state_dict(ours.ffn_residual.norm.state_dict())
        theirs.linear1.load_state_dict(ours.ffn.hidden.state_dict())
        theirs.linear2.load_state_dict(ours.ffn.output.state_dict())
    source, target = torch.randint(2, 53, (3, 11)), torch.randint(2, 53, (3, 7))

    def embedded(ids: torch.Tensor) -> torch.Tensor:
        positions = sinusoidal_encoding(ids.shape[1], 22, layout="half").float().double()
        return table[ids] * 22**0.5 + positions

    causal = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    state = oracle(embedded(source), embedded(target), tgt_mask=causal, tgt_is_causal=True)
    ours = network(source, decoder_token_ids=target).logits
    assert_close_to_largest(ours, state @ table.T, 10 * FP64)


def test_its_weights_begin_as_in_the_paper_s_code() -> None:
    for name, value in new_network(CONFIG, seed=5).named_parameters():
        if name.endswith("tokens.weight"):
            assert not value[0].any()  # padding
            assert float(value[1:].detach().std()) == pytest.approx(22**-0.5, rel=5 / 1100**0.5)
        elif value.ndim == 2:
            joined = 3 if name.split(".")[-2] in "qkv" else 1  # as torch's MultiheadAttention has it
            bound = (6 / (joined * value.shape[0] + value.shape[1])) ** 0.5
            assert 0.95 * bound < float(value.detach().abs().max()) <= bound
        else:
            assert value.unique().tolist() == [1.0 if name.endswith("norm.weight") else 0.0]


def test_it_begins_as_torch_s_attention_does() -> None:
    """Queries, keys and values as wide as of `nn.MultiheadAttention`, which begins them as one matrix."""
    theirs = float(torch.cat([nn.MultiheadAttention(22, 2).in_proj_weight for _ in range(5)]).detach().std())
    attention = new_network(CONFIG, seed=5).encoder.layers[0].attention
    for part in (attention.q, attention.k, attention.v):
        assert float(part.weight.detach().std()) == pytest.approx(theirs, rel=5 / (2 * 22**2) ** 0.5)


def test_the_positions_of_a_text_begin_apart() -> None:
    """Four layers of the paper's norms with matrices that begin alone: their mean cosine is .9 and more."""
    config = original_transformer(vocab_size=53, d_model=128, num_layers=4, num_heads=4, d_ff=256)
    network = new_network(config, seed=3).eval()
    with torch.no_grad():
        state = nn.functional.normalize(network.encode(torch.randint(2, 53, (7, 13))).state, dim=-1)
    pairs = (state @ state.mT).triu(diagonal=1)
    assert float(pairs.sum()) / (7 * 13 * 12 / 2) < 0.8
