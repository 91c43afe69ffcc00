"""A transformers model called like a network of regard's own: names, sizes, refusals, what is kept."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from lens_models import (
    BOTH,
    D_MODEL,
    DECODER_LAYERS,
    FAMILIES,
    GROUPED,
    HEADS,
    IDS,
    LAYERS,
    OTHERS,
    SIZES,
    VOCAB,
    bert,
    build,
    call,
    gpt2,
    inputs,
)
from regard.core import Causal, Padding, Taps, TensorMask, Window
from regard.core.errors import InputError, RegardError
from regard.foreign import LensConfig, LensNetwork, lens
from regard.foreign._lens import Run
from regard.foreign._look import _TooMany, _WithinTables
from regard.foreign._survey import _Watcher
from regard.tracing import trace_ids, trace_text


@pytest.fixture(scope="module")
def encoder() -> Any:
    return LensNetwork(bert())


@pytest.fixture(scope="module")
def decoder() -> Any:
    return LensNetwork(gpt2())


@pytest.fixture(scope="module")
def both() -> Any:
    return LensNetwork(FAMILIES["bart"]())


def test_kinds_come_from_what_a_model_does(encoder: Any, decoder: Any, both: Any) -> None:
    assert dict(encoder.prefixes) == {"encoder": ""}
    assert dict(decoder.prefixes) == {"decoder": ""}
    assert dict(both.prefixes) == {"encoder": "encoder.", "decoder": "decoder."}
    assert (encoder.depth("encoder"), decoder.depth("decoder")) == (LAYERS, LAYERS)
    assert (both.depth("encoder"), both.depth("decoder")) == (LAYERS, DECODER_LAYERS)


def test_sizes_are_those_of_the_model(encoder: Any, both: Any) -> None:
    assert encoder.config == LensConfig(
        vocab_size=VOCAB,
        d_model=D_MODEL,
        num_layers=LAYERS,
        num_heads=HEADS,
        max_seq_len=41,
        num_token_types=2,
        architecture="BertForMaskedLM",
    )
    assert encoder.limit("encoder") == 41
    assert both.limit("decoder") == 41
    assert both.start_id == 2
    assert encoder.start_id is None
    assert LensNetwork(FAMILIES["llama"]()).limit("decoder") is None


@pytest.mark.parametrize("positions", [2, 3, 10])
@pytest.mark.parametrize("name", ["gpt2", "bert", "roberta", "bart"])
def test_a_model_of_few_positions_is_looked_at_with_as_many_tokens(name: str, positions: int) -> None:
    # RoBERTa's table begins after the padding's id: two of its rows are no token's.
    few = {"max_position_embeddings": positions + 2 * (name == "roberta")}
    model = {
        "gpt2": lambda: gpt2(n_positions=positions),
        "bert": lambda: bert(**few),
        "roberta": lambda: build(
            transformers.RobertaForMaskedLM,
            transformers.RobertaConfig(**SIZES | IDS | {"pad_token_id": 1} | few),
        ),
        "bart": lambda: build(
            transformers.BartForConditionalGeneration, transformers.BartConfig(**BOTH | few)
        ),
    }[name]()
    network = LensNetwork(model)
    assert [network.limit(kind) for kind in network.prefixes] == [positions] * len(network.prefixes)
    assert network.parity.output == 0.0


def test_no_row_past_a_table_is_ever_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    lookup = torch.embedding

    def noted(weight: Tensor, ids: Tensor, *rest: Any) -> Tensor:
        asked.append(int(ids.max()) < len(weight))
        return lookup(weight, ids, *rest)

    monkeypatch.setattr(torch, "embedding", noted)
    model = gpt2(n_positions=5)
    model.config.n_positions = 41  # more than there are
    assert LensNetwork(model).limit("decoder") == 5
    assert all(asked)
    with pytest.raises(InputError, match=r"at least 2 tokens.* looked up row 12 of a table of 1"):
        LensNetwork(gpt2(n_positions=1))


def test_every_way_of_picking_rows_is_watched() -> None:
    table, ids = torch.arange(5.0), torch.tensor([1, 7])
    ways: list[Callable[[], Tensor]] = [
        lambda: torch.nn.functional.embedding(ids, table[:, None]),
        lambda: torch.nn.Embedding(5, 2)(ids),
        lambda: torch.gather(table, dim=0, index=ids),
        lambda: table.index_select(0, ids),
        lambda: table[ids],
    ]
    for pick in ways:
        with _WithinTables(), pytest.raises(_TooMany, match="row 7 of a table of 5"):
            pick()
    with _WithinTables():
        assert table[torch.tensor([0, -1])].tolist() == [0.0, 4.0]
        assert table[table > 3.0].tolist() == [4.0]


def test_taps_are_named_as_in_regards_own(encoder: Any, both: Any) -> None:
    attention = [
        f"layers.0.attention.{name}"
        for name in ("q", "k", "v", "inputs", "scores", "weights", "context", "output")
    ]
    ffn = ["layers.0.ffn.hidden", "layers.0.ffn.output"]
    first = ["embeddings.tokens", "layers.0.input", *attention, *ffn, "layers.0.output", "layers.1.input"]
    assert encoder.tap_names()[: len(first)] == first
    assert encoder.tap_names()[-2:] == ["output", "logits"]
    assert "decoder.layers.2.cross_attention.weights" in both.tap_names()
    assert "encoder.layers.0.cross_attention.weights" not in both.tap_names()


def test_one_layer_is_told_from_its_stack() -> None:
    model = gpt2(n_layer=1)
    network = LensNetwork(model)
    assert "layers.0.input" in network.tap_names()
    kept: dict[str, Tensor] = {}
    taps = {
        name: lambda value, name=name: kept.update({name: value}) for name in ("layers.0.output", "output")
    }
    call(network, inputs(model), taps=Taps(taps))
    assert torch.equal(model.transformer.ln_f(kept["layers.0.output"]), kept["output"])


def test_hidden_states_are_the_models(both: Any) -> None:
    model = both.hf_model
    given = inputs(model)
    with torch.no_grad():
        expected = model(**given, output_hidden_states=True)
    kept: dict[str, Tensor] = {}
    names = [name for name in both.tap_names() if name.endswith((".input", "coder.output"))]
    call(
        both, given, taps=Taps({name: lambda value, name=name: kept.update({name: value}) for name in names})
    )
    for kind, depth in (("encoder", LAYERS), ("decoder", DECODER_LAYERS)):
        hidden = expected[f"{kind}_hidden_states"]
        for layer in range(depth):
            assert torch.equal(kept[f"{kind}.layers.{layer}.input"], hidden[layer])
        assert torch.equal(kept[f"{kind}.output"], hidden[-1])


def test_what_attention_adds_is_the_projected_context(encoder: Any) -> None:
    kept: dict[str, Tensor] = {}
    names = ("layers.1.attention.context", "layers.1.attention.output")
    given = inputs(encoder.hf_model)
    call(
        encoder,
        given,
        taps=Taps({name: lambda value, name=name: kept.update({name: value}) for name in names}),
    )
    dense = encoder.hf_model.bert.encoder.layer[1].attention.output.dense
    context = kept["layers.1.attention.context"]
    assert context.shape == (2, HEADS, 13, 8)
    assert torch.equal(dense(context.transpose(1, 2).flatten(2)), kept["layers.1.attention.output"])


def test_outputs_are_put_in_their_places(encoder: Any, decoder: Any, both: Any) -> None:
    output = call(encoder, inputs(encoder.hf_model))
    assert output.encoder_state is output.last_hidden_state
    assert output.decoder_state is None
    assert output.logits.shape == (2, 13, VOCAB)
    assert call(encoder, inputs(encoder.hf_model), logits=False).logits is None
    output = call(decoder, inputs(decoder.hf_model))
    assert output.decoder_state is output.last_hidden_state
    assert output.encoder_state is None
    output = call(both, inputs(both.hf_model))
    assert output.encoder_state.shape == (2, 13, D_MODEL)
    assert output.decoder_state.shape == (2, 7, D_MODEL)
    pooled = LensNetwork(build(transformers.BertModel, bert().config))
    assert call(pooled, inputs(pooled.hf_model)).pooled.shape == (2, D_MODEL)


def test_logits_that_nobody_asks_for_are_not_worked_out(decoder: Any) -> None:
    shapes = []
    handle = decoder.hf_model.lm_head.register_forward_hook(lambda _, args, out: shapes.append(out.shape))
    given = inputs(decoder.hf_model, padding="none")
    states = [call(decoder, given, logits=wanted).last_hidden_state for wanted in (True, False)]
    handle.remove()
    assert shapes == [(2, 13, VOCAB), (2, 1, VOCAB)]
    assert torch.equal(*states)


def test_masks_are_kept_as_objects_not_as_matrices() -> None:
    for name, kinds in (
        ("gpt2", {Causal, Padding}),
        ("mistral", {Causal, Window, Padding}),
        ("gemma2", {Causal, Window, Padding}),
        ("modernbert", {Window, Padding}),
    ):
        model = FAMILIES[name]()
        network = LensNetwork(model)
        seen: list[Any] = []
        call(network, inputs(model), taps=Taps({"layers.*.attention.inputs": seen.append}))
        assert {type(part) for record in seen for part in record.mask.parts()} == kinds
        seen.clear()
        call(network, inputs(model, padding="none"), taps=Taps({"layers.*.attention.inputs": seen.append}))
        parts = [part for record in seen if record.mask is not None for part in record.mask.parts()]
        assert not any(isinstance(part, TensorMask | Padding) for part in parts)


def test_bad_input_is_refused(encoder: Any, decoder: Any, both: Any) -> None:
    ids = torch.tensor([[11, 12, 13]])
    distilbert = LensNetwork(FAMILIES["distilbert"]())
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (encoder, {"token_ids": ids + VOCAB}, f"token_ids must be from 0 to {VOCAB - 1}"),
        (encoder, {"token_ids": ids[0]}, r"token_ids must be int64 of shape \(batch, positions\)"),
        (encoder, {"token_ids": ids, "mask": Causal()}, "mask must be a bool tensor"),
        (encoder, {"token_ids": ids, "mask": torch.ones(1, 3)}, r"Convert 0/1 with \.bool\(\)"),
        (encoder, {"token_ids": ids, "decoder_token_ids": ids}, "must be None: this model has one stack"),
        (both, {"token_ids": ids}, "decoder_token_ids must be given"),
        (distilbert, {"token_ids": ids, "token_types": ids}, "takes no token_type_ids"),
        (encoder, {"token_ids": ids, "taps": Taps({"layers.9.attention.q": print})}, "no tap is called"),
    ]
    for network, arguments, message in refused:
        with pytest.raises(InputError, match=message):
            network(**arguments)


def test_a_listener_that_returns_another_shape_is_refused(encoder: Any) -> None:
    taps = Taps({"layers.0.attention.context": lambda value: value[:1]})
    with pytest.raises(InputError, match="must return a tensor like the one it was given"):
        call(encoder, inputs(encoder.hf_model), taps=taps)


def test_a_model_that_attends_otherwise_than_on_the_first_look_is_not_shown() -> None:
    model = bert()
    network = LensNetwork(model)
    first, second = model.bert.encoder.layer
    model.bert.encoder.layer = torch.nn.ModuleList([first])
    with pytest.raises(RegardError, match=r"ran without calling layers\.1\.attention"):
        call(network, inputs(model))
    model.bert.encoder.layer = torch.nn.ModuleList([first, second, second])
    with pytest.raises(RegardError, match="called attention 2 times"):
        call(network, inputs(model))


def test_looking_changes_nobodys_random_numbers() -> None:
    model = bert()
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    LensNetwork(model)
    assert torch.equal(torch.rand(3), expected)


def test_the_result_of_the_look_is_kept(encoder: Any, both: Any) -> None:
    assert encoder.parity.output == 0.0
    assert [(each.kind, each.layer) for each in encoder.parity.layers] == [("encoder", 0), ("encoder", 1)]
    assert sum(each.kind == "cross" for each in both.parity.layers) == DECODER_LAYERS
    assert 0 < both.parity.context < both.parity.bound


def test_tokenizers_of_both_libraries_are_taken() -> None:
    from tokenizers import Tokenizer, models

    backend = Tokenizer(models.WordLevel({"bank": 0, "river": 5}, unk_token="bank"))
    model = bert()
    for given in (backend, transformers.PreTrainedTokenizerFast(tokenizer_object=backend)):
        loaded = lens(model, given, name="mine")
        assert loaded.source.name == "mine"
        assert loaded.family == "bert"
        assert loaded.tokenizer is not None
        assert loaded.tokenizer.id_of("river") == 5
    assert lens(model).tokenizer is None
    with pytest.raises(InputError, match="tokenizer must be a fast one"):
        lens(model, object())
    big = Tokenizer(models.WordLevel({"bank": VOCAB}, unk_token="bank"))
    with pytest.raises(InputError, match=f"must belong to hf_model: .* up to id {VOCAB}, .* {VOCAB} rows"):
        lens(model, big)


def test_a_table_too_short_for_a_mark_that_was_added_is_taken_without_it() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{id}": id for id in range(VOCAB)}
    backend = Tokenizer(models.WordLevel(words, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<image>"])
    loaded = lens(bert(), backend)
    assert trace_text(loaded, "w5 w7").token_ids == [5, 7]
    with pytest.raises(InputError, match="<image>"):
        trace_text(loaded, "w5 <image>")


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_classifier_that_takes_no_batch_is_looked_at_with_one_text(name: str) -> None:
    config = FAMILIES[name]().config
    config.pad_token_id = None
    classes = {
        "gpt2": transformers.GPT2ForSequenceClassification,
        "llama": transformers.LlamaForSequenceClassification,
    }
    model = build(classes[name], config)
    ids = torch.tensor([[11, 12, 13]])
    with pytest.raises(ValueError, match="batch sizes > 1"):
        model(ids.expand(2, 3))
    network = LensNetwork(model)
    assert dict(network.prefixes) == {"decoder": ""}
    assert network.parity.output == 0.0
    with torch.no_grad():
        assert torch.equal(network(ids).logits, model(ids).logits)
    assert not trace_ids(lens(model), [11, 12, 13]).weights(1).triu(1).any()


def test_a_classifier_that_wants_the_text_in_its_decoder_is_refused_and_its_base_taken() -> None:
    model = build(transformers.BartForSequenceClassification, FAMILIES["bart"]().config)
    with pytest.raises(InputError, match=r"a text and a shorter target, .*\(IndexError") as refused:
        lens(model)
    assert str(refused.value).endswith("hand in the model without it: hf_model.model.")
    assert LensNetwork(model.model).depth("decoder") == DECODER_LAYERS


def test_lenses_are_made_in_several_threads_while_the_model_runs_elsewhere() -> None:
    hf_model = gpt2()
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        wanted = hf_model(ids)[0]
        with ThreadPoolExecutor(3) as pool:
            made = [pool.submit(LensNetwork, hf_model) for _ in range(8)]
            run = [pool.submit(lambda: hf_model(ids)[0]) for _ in range(24)]
            assert all(each.result().parity.output == 0.0 for each in made)
            for each in run:
                with torch.no_grad():
                    assert torch.equal(each.result().detach(), wanted)


def test_another_threads_pass_may_meet_a_hook_that_torch_has_half_registered() -> None:
    watcher = _Watcher()
    watcher.enter(torch.nn.Identity(), (torch.ones(1),))  # without keyword arguments
    assert not watcher.survey.order
    before = Run(LensNetwork(gpt2()).layout, Taps({}))._before
    assert before(torch.nn.Identity(), (torch.ones(1),)) is None


def test_a_damaged_model_is_told_so() -> None:
    hf_model = gpt2()
    with torch.no_grad():
        next(hf_model.parameters())[:] = float("nan")
    with pytest.raises(RegardError, match="gives NaN on a few tokens: its weights are damaged"):
        LensNetwork(hf_model)


def test_batches_that_differ_are_refused(both: Any) -> None:
    with pytest.raises(InputError, match="decoder_token_ids must have the batch of token_ids, 1; got 2"):
        both(torch.tensor([[3, 1, 4]]), decoder_token_ids=torch.tensor([[3], [1]]))


def test_the_place_of_an_image_without_the_image_is_refused() -> None:
    vision = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 14}
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**GROUPED),
        vision_config=transformers.CLIPVisionConfig(**vision, image_size=8, patch_size=4),
        image_token_index=96,
    )
    loaded = lens(build(transformers.LlavaForConditionalGeneration, config))
    assert trace_ids(loaded, [3, 95, 5, 6]).tokens
    told = "token_ids hold 96, the image_token_(id|index) of LlavaForConditionalGeneration, which stands for"
    with pytest.raises(InputError, match=told):
        trace_ids(loaded, [3, 96, 96, 5])
    with pytest.raises(InputError, match=told):
        loaded.network(torch.tensor([[3, 5], [5, 96]]))


@pytest.mark.parametrize(
    ("field", "refused"),
    [
        *((f"{kind}_token_{end}", True) for kind in ("image", "video", "audio") for end in ("id", "index")),
        *((name, False) for name in ("pad_token_id", "image_start_token_id", "boi_token_id", "image_size")),
    ],
)
def test_which_ids_are_places(field: str, refused: bool) -> None:
    network = LensNetwork(gpt2(**{field: 17}))
    ids = torch.tensor([[3, 17, 5]])
    if refused:
        with pytest.raises(InputError, match=f"token_ids hold 17, the {field} of GPT2LMHeadModel"):
            network(ids)
    else:
        network(ids)


def test_a_model_without_attention_has_none_to_see() -> None:
    with pytest.raises(InputError, match=r"^hf_model MambaForCausalLM has no attention: no part of it is"):
        LensNetwork(OTHERS["mamba"]())
