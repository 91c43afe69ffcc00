"""Statistics of every family, regard's own and through the lens, from the matrices of transformers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from lens_models import FAMILIES, inputs
from regard.models import FAMILIES as OWN
from regard.tracing import Statistics, Trace
from tolerances import PARITY_FP32, VARIANCE_OF_DISTANCE, assert_close_to_largest

KINDS = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}


def compare(found: Statistics, attentions: tuple[Tensor, ...], name: str) -> None:
    """Of (1, heads, queries, keys) in each layer; what a row lacks to one is the sink's."""
    weights = torch.stack([each[0] for each in attentions]).double()
    total = weights.sum(3)
    entropy = torch.special.entr(weights).sum(3)
    if found.to_sink is not None:
        assert_close_to_largest(found.to_sink, 1 - total, PARITY_FP32)
        entropy += torch.special.entr(1 - total)
    wanted = {
        "entropy": entropy,
        "largest": weights.amax(3),
        "to_first": weights[..., 0],
        "received": weights.sum(2),
        "top_weights": weights.topk(3, dim=3).values,
    }
    if found.kind != "cross":
        at = torch.arange(weights.shape[2])
        distance = (at[:, None] - at).abs().double()
        mean = (weights * distance).sum(3) / total
        variance = (weights * (distance - mean[..., None]) ** 2).sum(3) / total
        wanted |= {"distance": mean, "to_self": weights.diagonal(dim1=2, dim2=3)}
        assert found.spread is not None
        assert (found.spread.double() ** 2 - variance).abs().max() < VARIANCE_OF_DISTANCE
        for values, offset, ends in (
            (found.to_previous, -1, slice(1, None)),
            (found.to_next, 1, slice(0, -1)),
        ):
            assert values is not None
            assert_close_to_largest(values[..., ends], weights.diagonal(offset, dim1=2, dim2=3), PARITY_FP32)
    for each, values in wanted.items():
        assert_close_to_largest(getattr(found, each), values, PARITY_FP32)
    assert (found.to_sink is not None) == (name == "gpt_oss")


def check(trace: Trace, output: Any, name: str) -> None:
    """Every kind of attention that there is."""
    for kind in trace.kinds:
        attentions = output[KINDS[kind]] if len(trace.kinds) > 1 else output["attentions"]
        compare(trace.statistics(kind, top_k=3), attentions, name)


@pytest.mark.parametrize("name", FAMILIES)
def test_from_the_matrices_of_transformers(name: str, tmp_path: Path) -> None:
    model = FAMILIES[name]()
    given = {key: value[:1] for key, value in inputs(model).items() if key != "attention_mask"}
    ids, target = given["input_ids"][0].tolist(), given.get("decoder_input_ids")
    asked = {"token_ids": ids} | ({} if target is None else {"target_ids": target[0].tolist()})
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(**given, output_attentions=True, use_cache=False)
    check(regard.lens(model, None).trace(**asked), output, name)
    if model.config.model_type in OWN:
        model.save_pretrained(tmp_path)
        check(regard.load(tmp_path).trace(**asked), output, name)
