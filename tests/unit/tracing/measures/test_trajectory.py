"""A word's way through the layers, against the tensors at the taps."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lens_models
import regard
from regard.core.errors import InputError
from regard.models.deberta._config import Convolution
from tolerances import FP64
from unit.models import folders
from unit.tracing import measured
from unit.tracing.conftest import TEXT, make_loaded
from unit.tracing.measured import NETWORKS, kinds, traced

OWN = [each for each in kinds("encoder", "decoder", "both", "bart", "gemma2") if each[1] != "cross"]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize(("name", "kind"), OWN)
def test_lengths_angles_and_shares(name: str, kind: Any) -> None:
    network: Any = NETWORKS[name]()
    trace = traced(network)
    found = trace.trajectory(2, kind=kind)
    e = [trace.passage(kind).embeddings(layer)[2].numpy() for layer in range(len(trace.passage(kind).hidden))]
    assert np.abs(found.norms.numpy() - [np.linalg.norm(each) for each in e]).max() < FP64 * 100
    assert math.isnan(found.to_previous[0])
    for layer in range(1, len(e)):
        assert abs(float(found.to_previous[layer]) - cosine(e[layer - 1], e[layer])) < FP64
        assert abs(float(found.to_first[layer]) - cosine(e[0], e[layer])) < FP64
        assert abs(float(found.to_last[layer]) - cosine(e[-1], e[layer])) < FP64
    assert (float(found.to_first[0]), float(found.to_last[-1])) == (pytest.approx(1), pytest.approx(1))
    shares = found.shares
    assert shares is not None
    assert [sum(each.values()) for each in shares] == pytest.approx([1.0] * (len(e) - 1))
    sublayers = (
        ["attention", "cross_attention", "ffn"]
        if name in ("both", "bart") and kind == "decoder"
        else [
            "attention",
            "ffn",
        ]
    )
    last = ["norm"] if network.stack(kind).norm is not None else []
    for layer, each in enumerate(shares):
        start, end = ["embedding"] * (layer == 0), last if layer == len(shares) - 1 else []
        assert list(each) == [*start, *sublayers, *end]


def test_a_share_is_the_part_of_the_way() -> None:
    trace = traced(NETWORKS["decoder"]())  # pre-norm: what a sublayer gives is what it moves
    names = ["layers.1.input", "layers.1.attention.output", "layers.1.ffn.output", "layers.1.output"]
    start, attended, fed, end = (measured.seen(trace, names)[name][0, 3].numpy() for name in names)
    move = end - start
    shares = trace.trajectory(3).shares
    assert shares is not None
    assert shares[1] == pytest.approx(
        {"attention": attended @ move / (move @ move), "ffn": fed @ move / (move @ move)}, abs=FP64
    )


def test_the_steps_of_post_norm_are_with_their_norms() -> None:
    trace = traced(NETWORKS["encoder"]())
    layer = measured.module(trace, "encoder", 1)
    names = ["layers.1.input", "layers.1.attention.output", "layers.1.output"]
    start, attended, end = (measured.seen(trace, names)[name][0, 3] for name in names)
    middle = layer.attention_residual.norm(start + attended).detach()
    move = end - start
    shares = trace.trajectory(3).shares
    assert shares is not None
    assert shares[1]["attention"] == pytest.approx(float((middle - start) @ move / (move @ move)), abs=FP64)


def test_a_word_of_several_pieces_is_their_mean() -> None:
    trace = regard.Model(make_loaded()).trace(TEXT)
    found = trace.trajectory("fishing")
    assert (found.word, found.tokens) == ("fishing", ("fish", "##ing"))
    wanted = [float(trace.embedding("fishing", layer).norm()) for layer in range(3)]
    assert found.norms.tolist() == pytest.approx(wanted, rel=1e-6)
    assert repr(found).startswith(
        "Trajectory('fishing', 3 embedding layers, cosine of the first and the last"
    )


def test_embeddings_of_another_width_have_no_angle() -> None:
    trace = traced(folders.network("electra"))
    found = trace.trajectory(1)
    assert math.isnan(found.to_previous[1])
    assert found.to_first[1:].isnan().all()
    assert not found.to_last[1:].isnan().any()
    assert found.shares is not None
    assert list(found.shares[0]) == ["attention", "ffn"]
    assert sum(found.shares[0].values()) == pytest.approx(1.0)


def test_shares_that_cannot_be_told_are_none() -> None:
    trace = traced(NETWORKS["encoder"]())
    assert replace(trace, loaded=None).trajectory(1).shares is None
    assert traced(measured.of_family("deberta-v2", convolution=Convolution())).trajectory(1).shares is None
    assert regard.lens(lens_models.bert()).trace(token_ids=[3, 1]).trajectory(0).shares is None
    states = regard.Model(measured.loaded(NETWORKS["encoder"]())).trace(token_ids=[3, 1], keep="residual")
    assert states.trajectory(0).shares is None
    whole = regard.Model(measured.loaded(NETWORKS["encoder"]())).trace(token_ids=[3, 1])
    assert states.trajectory(0).norms.shape == whole.trajectory(0).norms.shape


def test_what_is_not_there_is_named() -> None:
    model = regard.Model(measured.loaded(NETWORKS["both"]()))
    trace = model.trace(token_ids=measured.IDS, target_ids=measured.TARGET_IDS)
    with pytest.raises(InputError, match='kind must be "encoder" or "decoder"'):
        trace.trajectory(1)
    with pytest.raises(InputError):
        trace.trajectory(9, kind="encoder")
    with pytest.raises(InputError, match='kept with keep="qk"'):
        model.trace(token_ids=measured.IDS, keep="qk").trajectory(1, kind="encoder")
    with pytest.raises(InputError, match="hidden state 2 is not in this trace"):
        model.trace(token_ids=measured.IDS, layers=0).trajectory(1, kind="encoder")
