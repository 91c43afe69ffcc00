"""The lens against the untouched model and eager attention: families, padding, writes, threads."""

import copy
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import regard
from lens_models import FAMILIES, GROUPED, bert, build, call, gpt2, inputs, untouched
from regard.core import Taps, attention_weights
from regard.core.errors import InputError, RegardError
from regard.foreign import LensNetwork, _implementations
from regard.models._parity import bound_of
from tolerances import FP32_OF_LARGEST, WEIGHTS, assert_close_to_largest

PADDINGS = ("none", "right", "left")
EAGER = (
    ("encoder.layers.{}.attention", "encoder_attentions"),
    ("decoder.layers.{}.attention", "decoder_attentions"),
    ("decoder.layers.{}.cross_attention", "cross_attentions"),
    ("layers.{}.attention", "attentions"),
)


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    """Each family's model and its network, built once."""
    cache: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in cache:
            model = FAMILIES[name]()
            cache[name] = (model, LensNetwork(model))
        return cache[name]

    return get  # type: ignore[return-value]


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_output_is_the_untouched_models_bit_for_bit(built: Any, name: str, padding: str) -> None:
    model, network = built(name)
    given = inputs(model, padding=padding)
    expected = untouched(model, given)
    seen: dict[str, Any] = {}
    everything = Taps({tap: lambda value, tap=tap: seen.update({tap: value}) for tap in network.tap_names()})
    for taps in (None, everything):
        output = call(network, given, taps=taps)
        if "logits" in expected:
            assert torch.equal(output.logits, expected.logits)
        else:
            assert torch.equal(output.last_hidden_state, expected.last_hidden_state)
    assert list(seen) == network.tap_names()


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", FAMILIES)
def test_weights_are_those_of_eager_attention(built: Any, name: str, padding: str) -> None:
    model, network = built(name)
    given = inputs(model, padding=padding)
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    expected = untouched(eager, given, output_attentions=True)
    kept: dict[str, Any] = {}
    taps = {tap: lambda value, tap=tap: kept.update({tap: value}) for tap in network.tap_names()}
    call(network, given, taps=Taps(taps))
    compared = 0
    for ours, theirs in EAGER:
        for layer, weights in enumerate(expected.get(theirs) or ()):
            at = ours.format(layer)
            mine = attention_weights(kept[f"{at}.inputs"])[..., : weights.shape[-1]]
            assert mine.shape == weights.shape
            # A row that may attend to nothing is zero in the fused kernel, uniform in eager attention.
            real = torch.ones(weights.shape[:3], dtype=torch.bool)
            if weights.shape[2] == given["attention_mask"].shape[1]:
                real = given["attention_mask"].bool()[:, None].expand(real.shape)
            assert float((mine - weights)[real].abs().max()) < 5 * WEIGHTS
            offered = kept[f"{at}.weights"][..., : weights.shape[-1]]
            assert float((offered - weights)[real].abs().max()) < 5 * WEIGHTS
            compared += 1
    assert compared == len(network.layout.sites)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_write_at_any_tap_changes_the_output_and_nothing_after_it(built: Any, name: str) -> None:
    model, network = built(name)
    given = inputs(model)
    before = call(network, given)
    for tap in network.tap_names():
        if tap.endswith(".inputs"):
            continue
        after = call(network, given, taps=Taps({tap: lambda value: value * 0.5}))
        same_state = torch.equal(before.last_hidden_state, after.last_hidden_state)
        same_logits = before.logits is None or torch.equal(before.logits, after.logits)
        assert not (same_state and same_logits), f"{tap} was written without effect"
    assert torch.equal(call(network, given).last_hidden_state, before.last_hidden_state)


@pytest.mark.parametrize("name", ["bert", "modernbert", "gpt2", "llama", "gemma2", "t5", "bart"])
def test_feed_forward_networks_are_those_of_regards_own_model(built: Any, name: str, tmp_path: Path) -> None:
    model, network = built(name)
    model.save_pretrained(tmp_path)
    own, given = regard.load(tmp_path).network, inputs(model, padding="none")
    taps = [tap for tap in own.tap_names() if ".ffn." in tap]
    assert taps == [tap for tap in network.tap_names() if ".ffn." in tap]
    seen: list[dict[str, Tensor]] = []
    for each in (own, network):
        seen.append({})
        call(each, given, taps=Taps({tap: partial(seen[-1].__setitem__, tap) for tap in taps}))
    for tap in taps:
        assert_close_to_largest(seen[1][tap], seen[0][tap], FP32_OF_LARGEST)


def test_a_mixture_of_experts_is_no_feed_forward_network(built: Any) -> None:
    _, network = built("gpt_oss")
    shared = transformers.Qwen2MoeConfig(
        **GROUPED,
        num_experts=3,
        num_experts_per_tok=2,
        moe_intermediate_size=20,
        mlp_only_layers=[1],
        shared_expert_intermediate_size=20,
    )
    some = LensNetwork(build(transformers.Qwen2MoeForCausalLM, shared))
    assert not [tap for tap in network.tap_names() if "ffn" in tap]
    assert [tap for tap in some.tap_names() if "ffn" in tap] == ["layers.1.ffn.hidden", "layers.1.ffn.output"]


def test_written_weights_give_the_context_that_follows_from_them(built: Any) -> None:
    model, network = built("bert")
    kept: dict[str, Tensor] = {}
    identity = torch.eye(13).expand(2, 4, 13, 13)
    taps = Taps(
        {
            "layers.1.attention.weights": lambda _: identity.clone(),
            "layers.1.attention.v": lambda value: kept.update(v=value),
            "layers.1.attention.context": lambda value: kept.update(context=value),
        }
    )
    call(network, inputs(model, padding="none"), taps=taps)
    assert torch.equal(kept["context"], kept["v"])


def test_an_in_place_write_counts(built: Any) -> None:
    model, network = built("bert")
    given = inputs(model)
    before = call(network, given)

    def zero(value: Tensor) -> None:
        value[:, 0] = 0.0

    after = call(network, given, taps=Taps({"layers.0.attention.weights": zero}))
    assert not torch.equal(before.logits, after.logits)


@pytest.mark.parametrize("name", ["bert", "t5", "gemma2"])
def test_nothing_is_left_in_the_model(name: str) -> None:
    model = FAMILIES[name]()
    before = _state(model)
    network = LensNetwork(model)
    assert _state(model) == before
    given = inputs(model)
    taps = {tap: lambda value: None for tap in network.tap_names()}
    call(network, given, taps=Taps(taps))
    assert _state(model) == before

    def stop(value: Any) -> None:
        raise KeyError("stop")

    prefix = next(iter(network.prefixes.values()))
    for tap in (f"{prefix}layers.1.attention.q", f"{prefix}layers.1.input", f"{prefix}output"):
        with pytest.raises(KeyError, match="stop"):
            call(network, given, taps=Taps({tap: stop}))
        assert _state(model) == before
    expected = untouched(model, given)
    assert torch.equal(call(network, given).logits, expected.logits)


def _state(model: Any) -> Any:
    """What could be left behind: hooks, attributes, what the configs hold."""
    configs = _implementations.configs_of(model)
    return (
        [
            (name, len(each._forward_hooks), len(each._forward_pre_hooks))
            for name, each in model.named_modules()
        ],
        [(name, sorted(vars(each))) for name, each in model.named_modules()],
        [
            (type(config).__name__, type(config._attn_implementation), config.to_json_string())
            for config in configs
        ],
        [config._attn_implementation for config in configs],
    )


def test_two_lenses_run_inside_each_other() -> None:
    outer, inner = bert(), gpt2()
    networks = LensNetwork(outer), LensNetwork(inner)
    given = inputs(outer), inputs(inner)
    expected = untouched(outer, given[0]).logits, untouched(inner, given[1]).logits
    found = []

    def run_inner(value: Tensor) -> None:
        seen: list[Tensor] = []
        output = call(networks[1], given[1], taps=Taps({"layers.0.attention.weights": seen.append}))
        found.append((output.logits, untouched(inner, given[1]).logits, len(seen)))

    result = call(networks[0], given[0], taps=Taps({"layers.0.attention.q": run_inner}))
    assert torch.equal(result.logits, expected[0])
    ((through_lens, plain, count),) = found
    assert torch.equal(through_lens, expected[1])
    assert torch.equal(plain, expected[1])
    assert count == 1


@pytest.mark.parametrize("shared", [True, False], ids=["one-model", "two-models"])
def test_threads_do_not_meet(shared: bool) -> None:
    models = [bert()] * 2 if shared else [bert(), gpt2()]
    networks = [LensNetwork(model) for model in models]
    given = [inputs(models[0], source=13), inputs(models[1], source=17)]
    expected = [untouched(model, each).logits for model, each in zip(models, given, strict=True)]
    barrier = threading.Barrier(3)
    failures: list[str] = []

    def listen(index: int) -> None:
        barrier.wait()
        for _ in range(25):
            shapes: list[Any] = []
            taps = Taps(
                {"layers.*.attention.weights": lambda value, shapes=shapes: shapes.append(value.shape)}
            )
            output = call(networks[index], given[index], taps=taps)
            length = given[index]["input_ids"].shape[1]
            if not torch.equal(output.logits, expected[index]) or shapes != [(2, 4, length, length)] * 2:
                failures.append(f"lens {index}: {shapes}")

    def plain() -> None:
        barrier.wait()
        for _ in range(50):
            if not torch.equal(untouched(models[0], given[0]).logits, expected[0]):
                failures.append("untouched model")

    threads = [threading.Thread(target=listen, args=(index,)) for index in (0, 1)]
    threads.append(threading.Thread(target=plain))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for model in models:
        assert [type(config._attn_implementation) for config in _implementations.configs_of(model)] == [str]


def test_gradients_flow_through_the_lens_as_without_it() -> None:
    model = gpt2()
    network = LensNetwork(model)
    given = inputs(model, padding="none")
    model(**given).logits.sum().backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    taps = Taps({"layers.*.attention.inputs": lambda record: None})
    network(given["input_ids"], mask=given["attention_mask"].bool(), taps=taps).logits.sum().backward()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, expected[name]), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types(dtype: torch.dtype) -> None:
    model = FAMILIES["llama"]().to(dtype)
    network = LensNetwork(model)
    assert network.parity.output == 0.0
    assert network.parity.context < bound_of(dtype)


@pytest.mark.parametrize("name", ["mistral", "gemma2"])
def test_inference_mode(built: Any, name: str) -> None:
    model, network = built(name)
    given = inputs(model)
    seen: list[Any] = []

    def halve(value: Tensor) -> None:
        seen.append(value)
        value *= 0.5

    with torch.inference_mode():
        before = network(given["input_ids"], mask=given["attention_mask"].bool()).last_hidden_state
        for write in (seen.append, halve):
            taps = Taps({"layers.0.attention.weights": write, "layers.1.attention.inputs": seen.append})
            output = network(given["input_ids"], mask=given["attention_mask"].bool(), taps=taps)
            assert torch.equal(output.last_hidden_state, before) is (write is not halve)
    assert len(seen) == 4


def test_an_eager_model_stays_eager() -> None:
    model = bert()
    model.set_attn_implementation("eager")
    network = LensNetwork(model)
    given = inputs(model)
    output = call(network, given)
    assert torch.equal(output.logits, untouched(model, given).logits)
    assert model.config._attn_implementation == "eager"


def test_a_config_that_asks_for_attentions() -> None:
    config = transformers.BertConfig(
        vocab_size=97,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        output_attentions=True,
        attn_implementation="eager",
    )
    model = build(transformers.BertModel, config)
    network = LensNetwork(model)
    given = inputs(model)
    assert torch.equal(call(network, given).last_hidden_state, untouched(model, given).last_hidden_state)


# What the look at a new model must notice.


def test_a_wrong_scale_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bert()
    right = _implementations.Call.original

    def wrong(call: Any) -> Any:
        arguments = call.arguments | {"scaling": call.arguments["scaling"] * 1.01}
        return right(replace(call, arguments=arguments))

    monkeypatch.setattr(_implementations.Call, "original", wrong)
    with pytest.raises(RegardError, match="encoder attention layer 0: weights x values differ"):
        LensNetwork(model)


@pytest.mark.parametrize("name", ["bert", "mistral"])
def test_a_mask_registry_without_the_key_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    model = FAMILIES[name]()
    masks = transformers.AttentionMaskInterface._global_mapping
    for key in [key for key in masks if str(key).startswith("regard:")]:
        monkeypatch.delitem(masks, key)
    monkeypatch.setattr(transformers.AttentionMaskInterface, "register", lambda *_: None)
    with pytest.raises(RegardError, match="the output differs from the untouched model's"):
        LensNetwork(model)


def test_an_argument_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt2()
    attention = model.transformer.h[1].attn
    forward = attention.forward
    monkeypatch.setattr(attention, "forward", lambda *args, **kwargs: forward(*args, **kwargs, tilt=0.5))
    with pytest.raises(InputError, match=r"hands tilt=0\.5 to the attention of GPT2Attention"):
        LensNetwork(model)


def test_attention_past_the_registry_is_refused() -> None:
    for cls, config in (
        (transformers.DebertaV2Model, transformers.DebertaV2Config()),
        (transformers.MPNetModel, transformers.MPNetConfig()),
        (transformers.XLNetModel, transformers.XLNetConfig(n_layer=1, d_model=32, n_head=4, d_inner=44)),
    ):
        if cls is not transformers.XLNetModel:
            config = type(config)(**{key: value for key, value in SMALL.items() if hasattr(config, key)})
        with pytest.raises(InputError, match=f"{cls.__name__} makes no attention call through transformers'"):
            LensNetwork(build(cls, config))


SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 44,
}


def test_attention_that_is_seen_only_in_part_is_refused() -> None:
    config = transformers.LongT5Config(
        vocab_size=97, d_model=32, d_kv=8, d_ff=44, num_layers=1, num_decoder_layers=1, num_heads=4
    )
    with pytest.raises(
        InputError, match=r"attends past transformers' registry in .*\(LongT5LocalAttention\)"
    ):
        LensNetwork(build(transformers.LongT5Model, config))


def test_models_that_read_no_tokens_train_or_use_another_kernel_are_refused() -> None:
    with pytest.raises(InputError, match="ViTModel takes no input_ids"):
        LensNetwork(transformers.ViTModel(transformers.ViTConfig(hidden_size=12, num_hidden_layers=1)).eval())
    with pytest.raises(InputError, match=r"call hf_model\.eval\(\)"):
        LensNetwork(bert().train())
    with pytest.raises(InputError, match="must be a transformers PreTrainedModel"):
        LensNetwork(torch.nn.Linear(2, 3))
    model = bert()
    model.config._attn_implementation = "flex_attention"
    with pytest.raises(InputError, match="attends by flex_attention"):
        LensNetwork(model)
    model = bert()
    network = LensNetwork(model)
    model.train()
    with pytest.raises(InputError, match="evaluation mode"):
        call(network, inputs(model))
