"""Measures against transformers: logits after every layer, values taken away by a hook, sums of parts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lens_models
import regard
from regard.tracing import Trace
from tolerances import PARITY_FP32, assert_close_to_largest

pytestmark = pytest.mark.usefixtures("quiet")

IDS, TARGET_IDS = [13, 11, 14, 11, 15, 19, 12], [2, 17, 31, 12, 38]

# The last norm and the head of each, by the names that transformers has for them.
HEADS = {
    "gpt2": ("transformer.ln_f", "lm_head"),
    "llama": ("model.norm", "lm_head"),
    "gemma2": ("model.norm", "lm_head"),
    "bert": (None, "cls"),
    "t5": ("decoder.final_layer_norm", "lm_head"),
    "bart": (None, "lm_head"),
}


def both_ways(hf_model: Any, tmp_path: Path) -> dict[str, Trace]:
    """The same model loaded by regard from its folder, and through the lens."""
    hf_model.save_pretrained(tmp_path)
    target = TARGET_IDS if hf_model.config.is_encoder_decoder else None
    return {
        name: model.trace(token_ids=IDS, target_ids=target)
        for name, model in (("own", regard.load(tmp_path)), ("lens", regard.lens(hf_model)))
    }


def run(hf_model: Any) -> Any:
    given = {"input_ids": torch.tensor([IDS])}
    if hf_model.config.is_encoder_decoder:
        given["decoder_input_ids"] = torch.tensor([TARGET_IDS])
    with torch.no_grad():
        return hf_model(**given, output_hidden_states=True)


@pytest.mark.parametrize("family", HEADS)
def test_the_logit_lens(family: str, tmp_path: Path) -> None:
    hf_model = lens_models.FAMILIES[family]()
    output = run(hf_model)
    states = output.get("decoder_hidden_states") or output.hidden_states
    norm, head = (None if each is None else hf_model.get_submodule(each) for each in HEADS[family])
    scale = hf_model.config.d_model**-0.5 if family == "t5" and hf_model.config.tie_word_embeddings else 1.0
    for trace in both_ways(hf_model, tmp_path).values():
        found = trace.logit_lens(k=5)
        for layer, state in enumerate(states):
            is_last = layer == len(states) - 1  # transformers hands on that one after the norm
            with torch.no_grad():
                logits = head(scale * (state if norm is None or is_last else norm(state)))[0]
                if family == "bart":
                    logits = logits + hf_model.final_logits_bias[0]
                if family == "gemma2":
                    cap = hf_model.config.final_logit_softcapping
                    logits = cap * torch.tanh(logits / cap)
            if is_last:
                assert_close_to_largest(logits, output.logits[0], PARITY_FP32)
            assert_close_to_largest(found.logits[layer], logits.topk(5).values, PARITY_FP32)
            assert_close_to_largest(logits.gather(1, found.ids[layer]), logits.topk(5).values, PARITY_FP32)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "t5", "bart"])
def test_the_parts_of_a_logit_sum_to_that_of_transformers(family: str, tmp_path: Path) -> None:
    hf_model = lens_models.FAMILIES[family]()
    logits = run(hf_model).logits[0, -1].double()
    trace = both_ways(hf_model, tmp_path)["own"]
    for token in (5, 41):
        total = trace.direct_attribution(token).total
        if family == "gemma2":
            cap = hf_model.config.final_logit_softcapping
            total = cap * torch.tanh(total / cap)
        assert abs(total - float(logits[token])) < PARITY_FP32 * float(logits.abs().max())


# For each, layer 1 and the module that makes its values.
VALUES = {
    "bert": ("bert.encoder.layer.1", "attention.self.value"),
    "llama": ("model.layers.1", "self_attn.v_proj"),
    "gemma2": ("model.layers.1", "self_attn.v_proj"),
}


@pytest.mark.parametrize("family", VALUES)
def test_value_zeroing(family: str, tmp_path: Path) -> None:
    hf_model = lens_models.FAMILIES[family]()
    layer = hf_model.get_submodule(VALUES[family][0])
    values: nn.Module = layer.get_submodule(VALUES[family][1])
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        seen.append((output[0] if isinstance(output, tuple) else output)[0].double())

    hook = layer.register_forward_hook(keep)
    run(hf_model)
    for key in range(len(IDS)):

        def zero(module: nn.Module, args: Any, output: Tensor, key: int = key) -> Tensor:
            output = output.clone()
            output[:, key] = 0.0
            return output

        zeroing = values.register_forward_hook(zero)
        run(hf_model)
        zeroing.remove()
    hook.remove()
    whole, *changed = seen
    wanted = 1.0 - torch.stack([torch.cosine_similarity(each, whole, dim=1) for each in changed], dim=1)
    assert float(wanted.max()) > 1e-3
    for trace in both_ways(hf_model, tmp_path).values():
        assert_close_to_largest(trace.value_zeroing(1), wanted, PARITY_FP32)


@pytest.mark.filterwarnings("ignore:integrated gradients add up")  # in so few steps
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "bart"])
def test_own_and_through_the_lens(family: str, tmp_path: Path) -> None:
    traces = both_ways(lens_models.FAMILIES[family](), tmp_path)
    own, seen = traces["own"], traces["lens"]

    def of(output: Any) -> Tensor:
        return output.logits[0, -1, 41]  # type: ignore[no-any-return]

    for kind in own.kinds:
        for ask in ("norm_weighted", "norm_weighted_layer", "value_zeroing"):
            one, other = (getattr(each, ask)(1, kind=kind) for each in (own, seen))
            assert_close_to_largest(one, other, PARITY_FP32)
        one, other = (each.attention_gradients(1, of=of, kind=kind) for each in (own, seen))
        assert_close_to_largest(one, other, 10 * PARITY_FP32)
        if kind != "cross":
            assert_close_to_largest(own.rollout(kind=kind), seen.rollout(kind=kind), PARITY_FP32)
            one, other = (
                each.integrated_gradients(of=of, baseline=3, steps=8, kind=kind).attributions
                for each in (own, seen)
            )
            assert_close_to_largest(one, other, 10 * PARITY_FP32)
