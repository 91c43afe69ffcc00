"""Scores taken apart in real models, and in models of transformers: the parts sum to them, head by head."""

from pathlib import Path
from typing import Any

import pytest
import torch

import lens_models
import regard
from regard.models import Kind
from regard.tracing import Trace, WhyPart

pytestmark = pytest.mark.usefixtures("quiet")

IDS, TARGET_IDS = [13, 11, 14, 11, 15, 19, 12], [2, 17, 31, 12, 38]

NEAR = 1e-5
"""Of a score; absolute below 1."""


def check(trace: Trace, kind: Kind, layer: int, head: int, query: int, key: int) -> None:
    found = trace.why(layer, head, query, key, kind=kind)
    row = trace.scores(layer, head, kind=kind, query=query)[0].double()
    row_mean = row[row.isfinite()].mean()
    size = max(1.0, abs(found.score))
    assert abs(found.error) < NEAR * size
    assert abs(found.total - float(row[key] - row_mean)) < NEAR * size


def test_every_head_of_the_default_model() -> None:
    trace = regard.load().trace("The bank by the river was closed.")
    for layer in range(6):
        for head in range(12):
            check(trace, "encoder", layer, head, 2, 5)


def test_heads_of_smollm2() -> None:
    trace = regard.load("smollm2").trace("stone lamp river chair stone lamp river")
    for layer, head in ((0, 0), (11, 4), (17, 3), (29, 8)):
        check(trace, "decoder", layer, head, 5, 2)


def test_induction_in_smollm2() -> None:
    """What stands out at "river" is that it follows "lamp", which head 16.0 noted there."""
    words = "stone lamp river chair cloud pencil window garden"
    trace = regard.load("smollm2").trace(f"{words} {words}")
    assert float(trace.weights(16, 0).diagonal(-1).mean()) > 0.5
    for layer, head in ((18, 6), (17, 3), (17, 4)):
        checked = (layer, head) == (18, 6)  # each part is taken off, and the model run again
        found = trace.why(layer, head, "lamp#2", "river#1", check=checked)
        first = next(part for part in found.key_parts if part.writer.name == "head")
        assert (first.writer.layer, first.writer.head, first.source) == (16, 0, 1)
        assert first.value > 0.5 * found.value
        if checked:
            assert first.weight is not None
            assert first.weight < 0.7 * found.weight
        feeds = trace.why_heads(layer, head, query=slice(9, None)).key_feeds
        assert (feeds[0].writer.layer, feeds[0].writer.head) == (16, 0)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "bert", "t5", "bart"])
def test_every_head_of_models_of_transformers(family: str, tmp_path: Path) -> None:
    """Their own weights give the differences of scores: log w - log w'."""
    hf_model: Any = lens_models.FAMILIES[family]()
    hf_model.save_pretrained(tmp_path)
    is_both = hf_model.config.is_encoder_decoder
    trace = regard.load(tmp_path).trace(token_ids=IDS, target_ids=TARGET_IDS if is_both else None)
    theirs = attentions(hf_model)
    for kind in trace.kinds:
        for layer in trace.layers_of(kind):
            for head in range(trace.attention_of(layer, kind).inputs.num_heads):
                check(trace, kind, layer, head, 3, 2)
                found = trace.why(layer, head, 3, 2, kind=kind, against=3)
                weights = theirs[kind][layer][0, head, 3].double()
                apart = float(weights[2].log() - weights[3].log())
                assert abs(found.total - apart) < NEAR * max(1.0, abs(found.score))


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "modernbert", "t5"])
def test_through_the_lens_the_parts_are_those_of_regards_own_model(family: str, tmp_path: Path) -> None:
    """Which knows its projections and its turns by name; the lens reads them off a run."""
    hf_model: Any = lens_models.FAMILIES[family]()
    hf_model.save_pretrained(tmp_path)
    given: dict[str, Any] = {"token_ids": IDS}
    if hf_model.config.is_encoder_decoder:
        given["target_ids"] = TARGET_IDS
    own, seen = (loaded.trace(**given) for loaded in (regard.load(tmp_path), regard.lens(hf_model)))
    for kind in (each for each in own.kinds if each != "cross"):
        layer, head = own.layers_of(kind)[-1], 1
        ours, theirs = (trace.why(layer, head, 3, 2, kind=kind, check=True) for trace in (own, seen))
        size = max(1.0, abs(ours.score))
        assert abs(theirs.error) < NEAR * size
        assert theirs.value == pytest.approx(ours.value, abs=NEAR * size)
        assert theirs.bias == pytest.approx(ours.bias, abs=NEAR * size)
        for one, other in ((ours.query_parts, theirs.query_parts), (ours.key_parts, theirs.key_parts)):
            wanted, found = values(one), values(other)
            assert wanted.keys() == found.keys()
            for name, value in wanted.items():
                assert found[name] == pytest.approx(value, abs=NEAR * size)
            cuts = {each.writer: each.weight for each in one if each.writer.name in ("head", "ffn")}
            for part in other:
                if part.weight is not None and cuts.get(part.writer) is not None:
                    assert part.weight == pytest.approx(cuts[part.writer], abs=NEAR)
        feeds = [trace.why_heads(layer, head, kind=kind).key_feeds for trace in (own, seen)]
        heads = [{each.writer: each.times for each in side if each.writer.name == "head"} for side in feeds]
        assert heads[0].keys() == heads[1].keys()
        for writer, times in heads[0].items():
            assert heads[1][writer] == pytest.approx(times, abs=1e-3)


def values(parts: tuple[WhyPart, ...]) -> dict[tuple[Any, ...], float]:
    """By who wrote them; what is looked up is one, as the lens sees what enters layer 0 and no more."""
    found: dict[tuple[Any, ...], float] = {}
    for part in parts:
        of = part.writer
        is_looked_up = of.name in ("word", "position", "token_type", "embedding")
        name = ("embedding",) if is_looked_up else (of.name, of.layer, of.head, of.kind, part.source)
        found[name] = found.get(name, 0.0) + part.value
    return found


def attentions(hf_model: Any) -> dict[str, Any]:
    hf_model.set_attn_implementation("eager")
    given = {"input_ids": torch.tensor([IDS])}
    if hf_model.config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.tensor([TARGET_IDS])
    with torch.no_grad():
        output = hf_model(**given, output_attentions=True)
    if not hf_model.config.is_encoder_decoder:
        return dict.fromkeys(("encoder", "decoder"), output.attentions)
    return {
        "encoder": output.encoder_attentions,
        "decoder": output.decoder_attentions,
        "cross": output.cross_attentions,
    }
