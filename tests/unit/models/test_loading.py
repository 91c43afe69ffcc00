"""A model's folder through `regard.load`: what it keeps, and each way in which it does not fit."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import models

import regard
from regard.checkpoints import DEFAULT_MODEL, to_hf
from regard.core.errors import CheckpointError, InputError
from regard.models import FAMILIES, family_of
from regard.text import Tokenizer
from unit.models.folders import CONFIGS, OWN, REMOVED, call, ids, network, write, write_tokenizer

WORDS = "embeddings.word_embeddings.weight"


@pytest.fixture(params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_what_is_loaded(family: str, tmp_path: Path) -> None:
    model = regard.load(write(tmp_path, family))
    assert model.config == CONFIGS[family]
    assert model.loaded.family == family
    assert model.loaded.left_out == ()
    assert model.loaded.source.kind == "folder"
    assert not model.network.training
    assert all(parameter.requires_grad for parameter in model.network.parameters())
    assert not any(tensor.is_meta for tensor in [*model.network.parameters(), *model.network.buffers()])
    state = call(model.network, ids([3, 1])).last_hidden_state
    assert state.isfinite().all()
    assert state.shape[2] == model.config.d_model


# --- config.json


def refuse(folder: Path | str, message: str) -> str:
    with pytest.raises(CheckpointError, match=message) as caught:
        regard.load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_unknown_family_lists_the_known_ones(tmp_path: Path) -> None:
    folder = write(tmp_path, fields={"model_type": "bertha"})
    refuse(folder, r"config\.json: model_type must be one of .*bart, bert, .*distilbert, .*; got 'bertha'")
    with pytest.raises(InputError, match="got 'bertha'"):
        family_of("bertha")
    assert ", ".join(sorted(FAMILIES)) in refuse(folder, "bertha")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("vocab_size", REMOVED, "the field 'vocab_size' must be a whole number; it is missing"),
        ("vocab_size", "31", "the field 'vocab_size' must be a whole number; got '31'"),
        ("max_position_embeddings", None, "the field 'max_position_embeddings' must be a whole number"),
        ("max_position_embeddings", 0, "max_(seq_len|position_embeddings'?) must be at least .*; got 0"),
        ("vocab_size", 10**21, "vocab_size must be at least 1 and below 2.31; got 1"),
        ("vocab_size", 2**62, "config.json"),
        ("hidden_size", -15, "d_model must be at least 1 and below 2.31; got -15"),
        ("hidden_size", 16, "num_heads must divide d_model; got 3 and 16"),
        ("num_hidden_layers", 0, "num_layers must be at least 1 and below 2.31; got 0"),
        ("num_hidden_layers", 10**9, "must be at most [0-9]+, the number of stored tensors; got 1000000000"),
        ("num_attention_heads", 0, "num_heads must be at least 1 and below 2.31; got 0"),
        ("hidden_act", "gelo", "config.json: activation must be one of gelu, .*; got 'gelo'"),
        ("hidden_act", 3, "must be a text"),
        ("hidden_dropout_prob", 1.5, "dropout_p must be .*; got 1.5"),
        ("rope_theta", 10_000.0, "may change the result: rope_theta"),
        ("quantization_config", {}, "may change the result: quantization_config"),
        # What BERT could be, and regard's is not.
        (
            "position_embedding_type",
            "relative_key",
            "'position_embedding_type' must be .*, all that regard supports; got 'relative_key'",
        ),
        (
            "directionality",
            "left-to-right",
            "'directionality' must be .*, all that regard supports; got 'left-to-right'",
        ),
        ("is_decoder", True, "'is_decoder' must be .*, all that regard supports; got True"),
        ("add_cross_attention", True, "may change the result: add_cross_attention = True"),
    ],
)
def test_a_field_that_does_not_fit(tmp_path: Path, field: str, value: Any, message: str) -> None:
    refuse(write(tmp_path, fields={field: value}), message)


def test_what_published_checkpoints_carry(tmp_path: Path) -> None:
    # bert-large-uncased, and cross-encoders built on BERT
    fields = {
        "directionality": "bidi",
        "output_past": True,
        "pooler_fc_size": 768,
        "pooler_num_attention_heads": 12,
        "pooler_num_fc_layers": 3,
        "pooler_size_per_head": 128,
        "pooler_type": "first_token_transform",
        "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity",
    }
    assert regard.load(write(tmp_path, fields=fields)).config == CONFIGS["bert"]


@pytest.mark.parametrize("device", ["nowhere", "cuda:97", "meta"])
def test_a_device_that_is_not_here(tmp_path: Path, device: str) -> None:
    with pytest.raises(InputError, match=f"device must be one that torch has here.*; got '{device}'"):
        regard.load(write(tmp_path), device=device)


def test_stored_in_a_type_that_nothing_computes_in(tmp_path: Path) -> None:
    folder = write(tmp_path, dtype=torch.float8_e4m3fn)
    refuse(folder, "stores torch.float8_e4m3fn, which no layer computes in; pass dtype=")
    weights = next(regard.load(folder, dtype=torch.float32).network.parameters())
    assert weights.dtype == torch.float32


def test_several_unread_fields_are_listed_sorted(tmp_path: Path) -> None:
    folder = write(tmp_path, fields={"quantization_config": 1, "auto_map": 2})
    message = refuse(folder, "regard does not know these fields")
    assert message.index("auto_map = 2") < message.index("quantization_config = 1")


def test_fields_that_transformers_does_not_read_either_are_a_note(tmp_path: Path) -> None:
    stray = {"unk_token_id": 0, "_model_name_or_path": "x", "zeta": [{"a": None}]}
    model = regard.load(write(tmp_path, fields=stray))
    assert model.config == CONFIGS["bert"]
    assert model.loaded.notes == (
        f"{tmp_path / 'config.json'}: passed over _model_name_or_path = 'x', unk_token_id = 0, "
        "zeta = [{'a': None}]: transformers (3.5.1, 4.30.2, 4.57.6, 5.23.0) neither declares nor reads it",
    )


def test_a_slip_of_a_letter_is_no_note(tmp_path: Path) -> None:
    # One that transformers would pass over as well, and then take its own default for the right one.
    folder = write(tmp_path, fields={"layer_norm_eps": REMOVED, "layer_norm_epz": 1.0, "unk_token_id": 0})
    refuse(folder, r"change the result: layer_norm_epz = 1\.0 \(did you mean layer_norm_eps\?\); a field")


@pytest.mark.parametrize("family", ["srupp", "perceiver-io"])
def test_of_what_transformers_lacks_every_field_counts(family: str, tmp_path: Path) -> None:
    refuse(write(tmp_path, family, fields={"zeta": 1}), "may change the result: zeta = 1")


def test_fields_that_change_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path, fields={"use_cache": True, "_name_or_path": "x"})
    assert regard.load(folder).config == CONFIGS["bert"]


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_what_pads_changes_nothing_where_a_mask_says_it(family: str, tmp_path: Path) -> None:
    folder = write(tmp_path, family, fields={"pad_token_id": 0})
    assert regard.load(folder).config == CONFIGS[family]
    assert torch.equal(
        regard.load(write(tmp_path, family, fields={"pad_token_id": 3}))(ids([3, 1, 3])).last_hidden_state,
        regard.load(folder)(ids([3, 1, 3])).last_hidden_state,
    )


# --- tensors


def test_everything_that_does_not_fit_is_in_one_message_sorted(tmp_path: Path) -> None:
    bias = "encoder.layer.{}.output.dense.bias"
    folder = write(
        tmp_path,
        tensors={
            bias.format(1): REMOVED,
            bias.format(0): REMOVED,
            "zeta.weight": torch.zeros(1),
            "alpha.weight": torch.zeros(1),
            "encoder.layer.2.output.dense.bias": torch.zeros(15),
            WORDS: torch.zeros(30, 15),
            "embeddings.LayerNorm.bias": torch.zeros(16),
        },
    )
    message = refuse(folder, "the weights do not fit the network")
    missing, unexpected, shapes = re.fullmatch(
        r".*; missing: (.*); unexpected: (.*); of the wrong shape: (.*)", message
    ).groups()  # type: ignore[union-attr]
    assert re.findall(r"encoder\S*bias", missing) == [bias.format(0), bias.format(1)]
    assert re.findall(r"[a-z]\S*\.(?:weight|bias)", unexpected) == [
        "alpha.weight",
        "encoder.layer.2.output.dense.bias",
        "zeta.weight",
    ]
    assert shapes.index("embeddings.LayerNorm.bias (wanted [15], got [16])") < shapes.index(
        f"{WORDS} (wanted [31, 15], got [30, 15])"
    )


def test_a_missing_tensor(family: str, tmp_path: Path) -> None:
    of_layers = sorted(name for name in to_hf(network(family), family_of(family).keys) if ".1." in name)
    refuse(write(tmp_path, family, tensors={of_layers[0]: REMOVED}), f"missing: .*{re.escape(of_layers[0])}")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # Loading never leaves a layer of the checkpoint out.
        ({"fields": {"num_hidden_layers": 1}}, "unexpected: .*layer.1."),
        ({"tensors": {"pooler.dense.weight": REMOVED}}, "unexpected: pooler.dense.bias"),
        (
            {"tensors": {WORDS: torch.zeros(31, 15, dtype=torch.int64)}},
            f"of the wrong type: {WORDS} .*a floating type, got torch.int64",
        ),
    ],
    ids=["layers", "pooler", "type"],
)
def test_tensors_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    refuse(write(tmp_path, **changes), message)


def test_several_types(tmp_path: Path) -> None:
    folder = write(tmp_path, tensors={WORDS: torch.zeros(31, 15, dtype=torch.float16)})
    refuse(folder, "stored in several types .*pass dtype=")
    model = regard.load(folder, dtype=torch.float32)
    assert {parameter.dtype for parameter in model.network.parameters()} == {torch.float32}


def test_a_language_model_head_is_left_out(tmp_path: Path) -> None:
    heads = {"cls.predictions.bias": torch.zeros(31), "classifier.weight": torch.zeros(2, 15)}
    model = regard.load(write(tmp_path, tensors=heads))
    assert model.loaded.left_out == tuple(sorted(heads))
    assert model.describe()["left_out"] == sorted(heads)


def test_what_is_not_the_network_s_is_left_out_where_asked(tmp_path: Path) -> None:
    strange = {"fc.weight": torch.ones(3, 15), "fc.bias": torch.ones(3), "temperature": torch.ones(1)}
    torch.manual_seed(0)
    plain = regard.load(write(tmp_path)).loaded
    torch.manual_seed(0)
    write(tmp_path, tensors=strange)
    message = refuse(
        tmp_path, r"unexpected: fc\.bias, fc\.weight, temperature \(in Python, .* loads the rest\)"
    )
    assert "leave_out=['fc.', 'temperature']" in message
    loaded = regard.load(tmp_path, leave_out=["fc.", "temperature"]).loaded
    assert loaded.left_out == tuple(sorted(strange))
    assert loaded.mark() == plain.mark()
    with pytest.raises(InputError, match=r"leave_out has 'cf\.', with which no name"):
        regard.load(tmp_path, leave_out=["fc.", "cf."])
    for wrong in ("fc.", [""], [3]):
        with pytest.raises(InputError, match="leave_out must be a list of beginnings"):
            regard.load(tmp_path, leave_out=wrong)
    with pytest.raises(CheckpointError, match=r"missing: embeddings\.LayerNorm"):
        regard.load(tmp_path, leave_out=["fc.", "temperature", "embeddings."])


# Whether `model.` goes lies with the family; what torch puts before it, and other fields, go from all alike.
WRAPPED = [
    *((family, prefix) for family in sorted(FAMILIES) for prefix in ("model.", "module.model.")),
    *(
        (family, prefix)
        for family in ("bert", "t5")
        for prefix in ("module.", "_orig_mod.", "net.0.auto_model.")
    ),
]


@pytest.mark.parametrize(("family", "prefix"), WRAPPED)
def test_a_wrapper_is_taken_off_and_said(family: str, tmp_path: Path, prefix: str) -> None:
    stored = to_hf(network(family), family_of(family).keys)
    write(tmp_path, family, tensors=dict.fromkeys(stored, REMOVED) | _behind(prefix, stored))
    loaded = regard.load(tmp_path).loaded
    assert [re.findall("'(.*)'", note) for note in loaded.notes] == [
        [each] for each in _taken(family, prefix, stored)
    ]
    again = to_hf(loaded.network, family_of(family).keys)
    assert all(torch.equal(again[name], stored[name]) for name in stored)


def _behind(prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _taken(family: str, prefix: str, tensors: dict[str, Any]) -> list[str]:
    """A family may know `model.` before its names already."""
    keys, rest = family_of(family).keys, re.sub(r"(module|_orig_mod)\.", "", prefix)
    stored = [rest + name for name in tensors]
    is_known = all(keys.match(name) or keys.shared_by(name) for name in stored)
    return [each for each in ("_orig_mod.", "module.") if each in prefix] + [rest] * (not is_known)


def test_two_networks_in_one_file(tmp_path: Path) -> None:
    """A class with two encoders: one is loaded where the other is left out."""
    stored = to_hf(network("bert"), family_of("bert").keys)
    both = _behind("query.bert.", stored) | _behind("passage.bert.", stored)
    write(tmp_path, tensors=dict.fromkeys(stored, REMOVED) | both)
    assert len(refuse(tmp_path, "missing: .* more; unexpected: .* more")) < 900
    loaded = regard.load(tmp_path, leave_out=["passage."]).loaded
    assert loaded.left_out == tuple(sorted(_behind("passage.bert.", stored)))
    assert loaded.notes == ("'query.' was taken off the names of the tensors",)
    # After the wrapper's name, as well as with it.
    write(tmp_path, tensors=dict.fromkeys(stored, REMOVED) | _behind("module.", stored | {"fc.w": _ONE}))
    assert "leave_out=['fc.']" in refuse(tmp_path, "unexpected: fc.w")
    for begin in ("fc.", "module.fc."):
        regard.load(tmp_path, leave_out=[begin])


_ONE = torch.ones(1)


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "deberta-v2"])
def test_the_second_name_of_a_tied_bias(family: str, tmp_path: Path) -> None:
    """transformers reads one of them, by version: where they differ nobody knows which was trained."""
    keys = family_of(family).keys
    made = family_of(family).build(dataclasses.replace(CONFIGS[family], head="masked-lm"))
    stored = dict.fromkeys(to_hf(network(family), keys), REMOVED) | to_hf(made, keys)
    one = next(name for name in stored if keys.to_ours(name) == ("head.output.bias",))
    two = one.replace(".bias", ".decoder.bias")
    fields = made.config.to_hf()
    for given in ({two: stored[one].clone()}, {two: stored[one].clone(), one: REMOVED}):
        loaded = regard.load(write(tmp_path, family, fields=fields, tensors=stored | given)).loaded
        assert loaded.left_out == ()
        assert torch.equal(to_hf(loaded.network, keys)[one], stored[one])
    write(tmp_path, family, fields=fields, tensors=stored | {two: stored[one] + 1})
    refuse(tmp_path, f"different, though the network ties them: {one} and {two}")


def test_a_file_without_its_family_names_the_line(tmp_path: Path) -> None:
    stored = to_hf(network("bert"), family_of("bert").keys)
    for prefix, named in (("", '"bert" or "roberta" or "xlm-roberta"'), ("bert.", '"bert"')):
        tensors = dict.fromkeys(stored, REMOVED) | _behind(prefix, stored)
        write(tmp_path, fields={"model_type": REMOVED}, tensors=tensors)
        refuse(tmp_path, f'by the names of its tensors, add the line "model_type": {named}$')
    write(tmp_path, fields={"model_type": REMOVED}, tensors=dict.fromkeys(stored, REMOVED) | {"a": _ONE})
    refuse(tmp_path, "the field 'model_type' is missing$")


@pytest.mark.parametrize(
    ("family", "name", "value", "wrong"),
    [
        (
            "gpt2",
            "transformer.h.1.attn.bias",
            torch.ones(1, 1, 11, 11).tril().bool(),
            torch.ones(1, 1, 11, 11),
        ),
        ("gpt2", "h.0.attn.masked_bias", torch.tensor(-1e4), torch.tensor(0.0)),
        *(
            (family, name, 100.0 ** -(torch.arange(0, 10, 2) / 10), torch.ones(5))
            for family, name in (
                ("llama", "model.layers.1.self_attn.rotary_emb.inv_freq"),
                ("mistral", "rotary_emb.original_inv_freq"),
                ("gemma2", "model.rotary_emb.inv_freq"),
                ("gemma3_text", "rotary_emb_local.inv_freq"),
                ("modernbert", "model.layers.0.attn.rotary_emb.inv_freq"),
                ("modernbert", "rotary_emb.sliding_attention_original_inv_freq"),
            )
        ),
        ("gemma2", "model.embed_tokens.embed_scale", torch.tensor(15**0.5).bfloat16(), torch.tensor(1.0)),
        ("bart", "model.encoder.version", torch.tensor([3.0]), None),
    ],
)
def test_constants_that_older_files_store(
    tmp_path: Path, family: str, name: str, value: torch.Tensor, wrong: torch.Tensor | None
) -> None:
    """`tests/parity` has those that transformers keeps today."""
    assert regard.load(write(tmp_path, family, tensors={name: value})).loaded.left_out == ()
    if wrong is not None:
        write(tmp_path, family, tensors={name: wrong})
        refuse(tmp_path, f"not the constant that the network has: {re.escape(name)}$")


# --- types


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("bert", torch.float16),
        ("bert", torch.float64),
        # tests/parity has the other families in bfloat16.
        *((name, torch.bfloat16) for name in sorted({"bert", "gpt2", "llama", "t5"} | OWN)),
    ],
)
def test_dtype(family: str, tmp_path: Path, dtype: torch.dtype) -> None:
    folder = write(tmp_path, family)
    stored, model = regard.load(folder), regard.load(folder, dtype=dtype)
    assert {parameter.dtype for parameter in stored.network.parameters()} == {torch.float32}
    assert {parameter.dtype for parameter in model.network.parameters()} == {dtype}
    for name, parameter in stored.network.named_parameters():
        assert torch.equal(model.network.get_parameter(name), parameter.to(dtype))
    output = call(model.network, ids([3, 1, 4])).last_hidden_state
    assert output.dtype == dtype
    difference = output.double() - call(stored.network, ids([3, 1, 4])).last_hidden_state.double()
    # of values of size 1: eight roundings in a row at most
    assert difference.abs().max().item() <= 32 * max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_a_dtype_that_weights_cannot_have(tmp_path: Path, dtype: torch.dtype) -> None:
    with pytest.raises(
        InputError, match=rf"dtype must be torch.float32, float64, bfloat16 or float16; got {dtype}"
    ):
        regard.load(write(tmp_path), dtype=dtype)


# --- tokenizer


def test_no_tokenizer(tmp_path: Path) -> None:
    model = regard.load(write(tmp_path))
    with pytest.raises(CheckpointError, match=r"has no tokenizer, which text needs; .*token_ids"):
        _ = model.tokenizer
    with pytest.raises(CheckpointError, match=r"has no tokenizer, which text needs; .*token_ids"):
        model.trace("w1")
    assert model(ids([3, 1])).last_hidden_state.shape == (1, 2, 15)


@pytest.mark.parametrize(
    ("pieces", "settings", "is_said"),
    [
        ("river The Paris", None, True),
        ("river The Paris", {"do_lower_case": None}, True),
        ("river The Paris", {"do_lower_case": True}, False),
        ("river The Paris", {"do_lower_case": False}, False),
        ("river ##s", None, False),
    ],
)
def test_capitals_that_no_text_will_have(tmp_path: Path, pieces: str, settings: Any, is_said: bool) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces.split()]
    (write(tmp_path) / "vocab.txt").write_text("\n".join(words))
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    model = regard.load(tmp_path)
    assert model.describe()["notes"] == list(model.loaded.notes)
    assert [note[:39] for note in model.loaded.notes] == ["vocab.txt has capitals (The, Paris), bu"] * is_said
    assert (model.tokenizer.encode("The").tokens[1].text == "The") == (settings == {"do_lower_case": False})


def test_a_tokenizer_larger_than_the_table(tmp_path: Path) -> None:
    write_tokenizer(write(tmp_path), 32)
    refuse(
        tmp_path, r"tokenizer\.json has tokens up to id 31, but the model's table of embeddings has 31 rows"
    )


@pytest.mark.parametrize("size", [31, 7])
def test_a_tokenizer_that_fits(tmp_path: Path, size: int) -> None:
    write_tokenizer(write(tmp_path), size)
    trace = regard.load(tmp_path).trace("w3 w6 w1")
    assert trace.token_ids == [3, 6, 1]
    with pytest.raises(InputError, match=r"text has 12 tokens .* takes at most 11"):
        regard.load(tmp_path).trace("w1 " * 12)


# --- what would fill memory, or break later, is refused while loading


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("llama", {"num_hidden_layers": 10**9}, "'num_hidden_layers' must be at most .*; got 1000000000"),
        ("gemma2", {"num_hidden_layers": 10**9}, "'num_hidden_layers' must be at most .*; got 1000000000"),
        ("modernbert", {"num_hidden_layers": 10**9}, "'num_hidden_layers' must be at most"),
        ("t5", {"num_decoder_layers": 10**9}, "'num_decoder_layers' must be at most"),
        ("bart", {"decoder_layers": 10**9}, "'decoder_layers' must be at most"),
        ("t5", {"relative_attention_max_distance": 10**10}, "max_distance must be at most 16777216"),
        ("gpt2", {"n_head": 31}, "num_heads must divide d_model"),
        ("gemma2", {"attn_logit_softcapping": 0.0}, "softcap must be greater than 0, or None"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "query_scalar must be above 0; got 0"),
        ("llama", {"head_dim": 0}, "head_dim must be"),
        (
            "llama",
            {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1000.0}}},
            "'rope_parameters' must be one object for all layers",
        ),
        (
            "llama",
            {
                "rope_theta": REMOVED,
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0, "factor": 2.0},
            },
            "base must be greater than 1 for YaRN",
        ),
    ],
)
def test_what_would_break_later(tmp_path: Path, name: str, fields: dict[str, Any], message: str) -> None:
    refuse(write(tmp_path, name, fields=fields), message)


def test_a_decoder_that_was_not_downloaded_is_missed(tmp_path: Path) -> None:
    made = network("t5")
    lost = {key: REMOVED for key in to_hf(made, family_of("t5").keys) if key.startswith("decoder.")}
    assert lost
    refuse(write(tmp_path, "t5", tensors=lost), "missing: decoder.block.0")


# --- what is the model's own


def test_a_package_with_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Fields and weights fit each other: only the hash tells.
    write(tmp_path)
    monkeypatch.setattr("regard.checkpoints._find.installed", lambda _: tmp_path)
    refuse(DEFAULT_MODEL, "these are not the published weights")


def test_the_mark_tells_buffers_apart(tmp_path: Path) -> None:
    marks = set()
    for value in (0.0, 0.0, 0.5):
        torch.manual_seed(0)
        bias = {"final_logits_bias": torch.full((1, 31), value)}
        marks.add(regard.load(write(tmp_path, "bart", tensors=bias)).loaded.mark())
    assert len(marks) == 2


def test_each_side_of_marian_has_the_rows_of_its_own_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(size: int, **more: Any) -> Tokenizer:
        backend = tokenizers.Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
        return Tokenizer(backend, source=f"{size} words", **more)

    separate = {"share_embeddings": False, "decoder_vocab_size": 53}
    for target, fits in ((53, True), (54, False)):
        read = words(31, target=words(target))
        monkeypatch.setattr(Tokenizer, "from_folder", lambda *_, read=read, **__: read)
        monkeypatch.setitem(CONFIGS, "marian", dataclasses.replace(CONFIGS["marian"], **separate))
        folder = write(tmp_path, "marian")
        if fits:
            assert regard.load(folder).tokenizer.target.vocab_size == 53
        else:
            refuse(folder, "54 words has tokens up to id 53, but the model's table of embeddings has 53 rows")
