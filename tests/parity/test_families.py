"""Every family against transformers: forward, hidden states, attention, gradients, files both ways."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers
from torch import nn

import regard
from parity.harness import (
    BERT,
    DISTILBERT,
    LAYERS,
    VOCAB,
    FamilyUnderTest,
    assert_same_gradients,
    assert_same_run,
    batches,
    build,
    permute_heads,
    run_ours,
    run_theirs,
    save,
)
from regard.blocks import ACTIVATIONS
from regard.checkpoints import to_hf, write_tensors
from regard.models import FAMILIES, family_of
from tolerances import BF16, FP64, PARITY_FP32, assert_close_to_largest

UNDER_TEST = {family.name: family for family in (BERT, DISTILBERT)}
INPUTS = [(family, name) for family in UNDER_TEST for name in batches(UNDER_TEST[family].num_token_types)]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """transformers draws progress bars and reports of what it loads on stderr."""
    transformers.utils.logging.disable_progress_bar()
    verbosity = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    yield
    transformers.utils.logging.set_verbosity(verbosity)
    transformers.utils.logging.enable_progress_bar()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, torch.dtype], tuple[Any, Path]]:
    """Each family in each type: transformers' model and the folder that it wrote."""
    made = {}
    for family in UNDER_TEST.values():
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            model = build(family.model, family.config(), dtype=dtype)
            made[family.name, dtype] = (model, save(model, tmp_path_factory.mktemp(family.name)))
    return made


@pytest.fixture(params=list(UNDER_TEST))
def family(request: pytest.FixtureRequest) -> FamilyUnderTest:
    return UNDER_TEST[request.param]


def test_every_family_is_under_test() -> None:
    assert set(UNDER_TEST) == set(FAMILIES)


@pytest.mark.parametrize(("name", "kind"), INPUTS)
@pytest.mark.parametrize(
    ("dtype", "tol"), [(torch.float32, PARITY_FP32), (torch.float64, FP64)], ids=["fp32", "fp64"]
)
def test_everything_computed(saved: Any, name: str, kind: str, dtype: torch.dtype, tol: float) -> None:
    theirs, folder = saved[name, dtype]
    batch = batches(UNDER_TEST[name].num_token_types)[kind]
    model = regard.load(folder)
    assert {parameter.dtype for parameter in model.network.parameters()} == {dtype}
    assert_same_run(run_ours(model, batch), run_theirs(theirs, batch), tol)


@pytest.mark.parametrize("kind", ["plain", "right-padded"])
def test_bfloat16(saved: Any, family: FamilyUnderTest, kind: str) -> None:
    # The truth is the very same weights in double precision.
    theirs, folder = saved[family.name, torch.bfloat16]
    batch = batches(family.num_token_types)[kind]
    model = regard.load(folder)
    assert {parameter.dtype for parameter in model.network.parameters()} == {torch.bfloat16}
    ours = run_ours(model, batch)
    assert ours.last_hidden_state.dtype == torch.bfloat16
    assert_same_run(ours, run_theirs(copy.deepcopy(theirs).double(), batch), BF16, gradients=False)


@pytest.mark.parametrize("kind", ["plain", "right-padded"])
def test_converted_while_loading(saved: Any, family: FamilyUnderTest, kind: str) -> None:
    theirs, folder = saved[family.name, torch.float32]
    batch = batches(family.num_token_types)[kind]
    wide = regard.load(folder, dtype=torch.float64)
    assert_same_run(run_ours(wide, batch), run_theirs(copy.deepcopy(theirs).double(), batch), FP64)


def test_an_item_without_any_token(saved: Any, family: FamilyUnderTest) -> None:
    """Nothing to attend to: zero context and finite gradients here; the other items as in transformers."""
    theirs, folder = saved[family.name, torch.float64]
    batch = batches(family.num_token_types)["right-padded"]
    mask = batch.real.clone()
    mask[2] = False
    batch = replace(batch, mask=mask)
    ours, wanted = run_ours(regard.load(folder), batch), run_theirs(theirs, batch)
    others = [0, 1, 3, 4]
    assert_close_to_largest(ours.last_hidden_state[others], wanted.last_hidden_state[others], FP64)
    for weights in ours.weights:
        assert not weights[2].any()
    assert ours.last_hidden_state.isfinite().all()
    assert_same_gradients(ours, wanted, FP64)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_activations(family: FamilyUnderTest, activation: str, tmp_path: Path) -> None:
    theirs = build(
        family.model, family.config(**{family.activation_field: activation}), dtype=torch.float64, seed=3
    )
    model = regard.load(save(theirs, tmp_path))
    batch = batches(family.num_token_types)["right-padded"]
    assert_same_run(run_ours(model, batch), run_theirs(theirs, batch), FP64)


def test_activations_are_not_all_alike(tmp_path: Path) -> None:
    theirs = build(BERT.model, BERT.config(hidden_act="gelu_new"), dtype=torch.float64)
    model = regard.load(save(theirs, tmp_path))
    theirs.config.hidden_act = "gelu"
    wrong = build(BERT.model, theirs.config, dtype=torch.float64)
    wrong.load_state_dict(theirs.state_dict())
    batch = batches(BERT.num_token_types)["plain"]
    with pytest.raises(AssertionError, match="apart"):
        assert_same_run(run_ours(model, batch), run_theirs(wrong, batch), PARITY_FP32)


# --- what the comparison must notice


class TestTheComparisonNotices:
    @pytest.fixture
    def model(self, saved: Any, family: FamilyUnderTest) -> regard.Model:
        return regard.load(saved[family.name, torch.float32][1])

    def refuse(
        self, saved: Any, family: FamilyUnderTest, model: regard.Model, kind: str, **drop: None
    ) -> None:
        theirs, folder = saved[family.name, torch.float32]
        batch = batches(family.num_token_types)[kind]
        wanted = run_theirs(theirs, batch)
        assert_same_run(run_ours(regard.load(folder), batch), wanted, PARITY_FP32)
        with pytest.raises(AssertionError, match="apart"):
            assert_same_run(run_ours(model, replace(batch, **drop)), wanted, PARITY_FP32)

    @pytest.mark.parametrize("layer", range(LAYERS))
    @pytest.mark.parametrize("which", ["q", "k", "v"])
    def test_heads_in_another_order(
        self, saved: Any, family: FamilyUnderTest, model: regard.Model, layer: int, which: str
    ) -> None:
        permute_heads(getattr(model.network.layers[layer].attention, which))
        self.refuse(saved, family, model, "plain")

    def test_a_missing_mask(self, saved: Any, family: FamilyUnderTest, model: regard.Model) -> None:
        self.refuse(saved, family, model, "right-padded", mask=None)
        self.refuse(saved, family, model, "left-padded", mask=None)

    def test_dropped_token_types(self, saved: Any) -> None:
        model = regard.load(saved["bert", torch.float32][1])
        self.refuse(saved, BERT, model, "pair", token_types=None)

    def test_another_epsilon(self, saved: Any, family: FamilyUnderTest, model: regard.Model) -> None:
        norms = [module for module in model.network.modules() if isinstance(module, nn.LayerNorm)]
        assert len(norms) == 1 + 2 * LAYERS
        assert {norm.eps for norm in norms} == {1e-3 if family is BERT else 1e-12}
        for norm in norms:
            norm.eps = 1e-5
        self.refuse(saved, family, model, "plain")

    def test_positions_from_one(self, saved: Any, family: FamilyUnderTest, model: regard.Model) -> None:
        with torch.no_grad():
            table = model.network.embeddings.positions.weight
            table.copy_(table.roll(-1, dims=0).clone())
        self.refuse(saved, family, model, "plain")


# --- files


def test_weights_go_back_bit_for_bit(saved: Any, family: FamilyUnderTest) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        _, folder = saved[family.name, dtype]
        stored = load_file(folder / "model.safetensors")
        written = to_hf(regard.load(folder).network, FAMILIES[family.name].keys)
        assert written.keys() == stored.keys()
        for name, tensor in stored.items():
            assert written[name].dtype == tensor.dtype
            assert torch.equal(written[name], tensor), name


def test_a_model_that_regard_writes_is_read_by_transformers(
    saved: Any, family: FamilyUnderTest, tmp_path: Path
) -> None:
    theirs, folder = saved[family.name, torch.float32]
    model = regard.load(folder)
    ours = FAMILIES[family.name]
    (tmp_path / "config.json").write_text(json.dumps(ours.write_config(model.config)), encoding="utf-8")
    write_tensors(to_hf(model.network, ours.keys), tmp_path / "model.safetensors")
    again, report = family.model.from_pretrained(
        tmp_path, attn_implementation="eager", output_loading_info=True
    )
    assert not any(report.values()), report
    assert type(again.config) is type(theirs.config)
    batch = batches(family.num_token_types)["right-padded"]
    assert_same_run(run_theirs(again, batch), run_theirs(theirs, batch), 0.0)
    # Fields that transformers fills in itself must be those of the model that was loaded, dropout included.
    before, after = theirs.config.to_dict(), again.config.to_dict()
    noise = {"_name_or_path", "architectures", "dtype", "transformers_version", "_attn_implementation"}
    assert {k: v for k, v in after.items() if k not in noise} == {
        k: v for k, v in before.items() if k not in noise
    }
    assert regard.load(tmp_path).config == model.config


def test_shards(family: FamilyUnderTest, tmp_path: Path) -> None:
    theirs = build(family.model, family.config())
    folder = save(theirs, tmp_path, max_shard_size="8KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    assert not (folder / "model.safetensors").exists()
    batch = batches(family.num_token_types)["right-padded"]
    assert_same_run(run_ours(regard.load(folder), batch), run_theirs(theirs, batch), PARITY_FP32)


def test_a_checkpoint_with_a_head_for_masked_words(family: FamilyUnderTest, tmp_path: Path) -> None:
    theirs = build(family.masked_lm, family.config())
    folder = save(theirs, tmp_path)
    names = load_file(folder / "model.safetensors").keys()
    model = regard.load(folder)
    heads = sorted(name for name in names if name.startswith(family.head_prefix))
    assert heads
    assert list(model.loaded.left_out) == heads
    assert all(name.startswith(f"{family.name}.") for name in names - set(heads))
    batch = batches(family.num_token_types)["right-padded"]
    ours = run_ours(model, batch)
    assert ours.pooled is None
    assert_same_run(ours, run_theirs(getattr(theirs, family.name), batch), PARITY_FP32)


def test_bert_for_pretraining_keeps_its_pooler(tmp_path: Path) -> None:
    theirs = build(transformers.BertForPreTraining, BERT.config())
    model = regard.load(save(theirs, tmp_path))
    assert any(name.startswith("cls.seq_relationship") for name in model.loaded.left_out)
    batch = batches(BERT.num_token_types)["all-types-padded"]
    ours = run_ours(model, batch)
    assert ours.pooled is not None
    assert_same_run(ours, run_theirs(theirs.bert, batch), PARITY_FP32)


def test_bert_without_a_pooler(tmp_path: Path) -> None:
    theirs = build(BERT.model, BERT.config(), add_pooling_layer=False)
    model = regard.load(save(theirs, tmp_path))
    assert model.network.config.use_pooler is False
    assert model(torch.tensor([[3, 1, 4]])).pooled is None
    batch = batches(BERT.num_token_types)["plain"]
    assert_same_run(run_ours(model, batch), run_theirs(theirs, batch), PARITY_FP32)


def test_bert_with_gamma_and_beta(saved: Any, tmp_path: Path) -> None:
    """What TensorFlow called a norm's parameters, the stored positions, and the prefix, as in old files."""
    theirs, folder = saved["bert", torch.float32]
    old = {"bert.embeddings.position_ids": torch.arange(23)[None]}
    for name, tensor in load_file(folder / "model.safetensors").items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[f"bert.{name}"] = tensor
    assert sum(name.endswith(".gamma") for name in old) == 1 + 2 * LAYERS
    save_file(old, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    batch = batches(BERT.num_token_types)["all-types-padded"]
    assert_same_run(run_ours(regard.load(tmp_path), batch), run_theirs(theirs, batch), PARITY_FP32)


def test_distilbert_with_fixed_sinusoids(tmp_path: Path) -> None:
    theirs = build(DISTILBERT.model, DISTILBERT.config(sinusoidal_pos_embds=True))
    model = regard.load(save(theirs, tmp_path))
    batch = batches(0)["plain"]
    assert_same_run(run_ours(model, batch), run_theirs(theirs, batch), PARITY_FP32)


# --- from a text


def _tokenizer(path: Path, token_types: bool) -> None:
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    backend.train_from_iterator(
        ["the river bank", "a river", "the bank at the river"],
        trainers.WordPieceTrainer(vocab_size=VOCAB, special_tokens=special, show_progress=False),
    )
    of_pair = "1" if token_types else "0"
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair=f"[CLS]:0 $A:0 [SEP]:0 $B:{of_pair} [SEP]:{of_pair}",
        special_tokens=[(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    backend.save(str(path))


@pytest.mark.parametrize("pair", [None, "the river"], ids=["single", "pair"])
def test_a_trace(saved: Any, family: FamilyUnderTest, pair: str | None, tmp_path: Path) -> None:
    theirs, folder = saved[family.name, torch.float32]
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    _tokenizer(tmp_path / "tokenizer.json", token_types=family.num_token_types > 0)
    model = regard.load(tmp_path)
    trace = model.trace("the bank at a river", pair)
    assert trace.tokens[0] == "[CLS]"
    arguments = {"input_ids": torch.tensor([trace.token_ids])}
    if family.num_token_types:
        types = [token.type_id for token in trace.encoding.tokens]
        assert max(types) == (0 if pair is None else 1)
        arguments["token_type_ids"] = torch.tensor([types])
    with torch.no_grad():
        output = theirs(**arguments, output_attentions=True, output_hidden_states=True)
    for layer in range(LAYERS):
        assert_close_to_largest(trace.weights(layer), output.attentions[layer][0], PARITY_FP32)
        assert_close_to_largest(trace.embeddings(layer + 1), output.hidden_states[layer + 1][0], PARITY_FP32)
    assert_close_to_largest(trace.embeddings("input"), output.hidden_states[0][0], PARITY_FP32)
    assert family_of(model.loaded.family).name == family.name
