"""A network without some heads: the numbers of the full one with their contexts at zero, and less of it."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.core import Taps
from regard.core.errors import CheckpointError, InputError, OutputError
from regard.foreign import lens
from regard.models import (
    FAMILIES,
    Loaded,
    Network,
    attentions,
    check_heads,
    heads_told,
    load_checkpoint,
    removed_heads,
    removed_words,
    save_checkpoint,
)
from regard.pruning import loads_in, prune
from tolerances import FP64, assert_close_to_largest
from unit.models.folders import call, ids, network, write, write_tokenizer

TEXTS = ids([4, 7, 1, 28, 2, 6, 30], [5, 9, 3, 3, 8, 11, 12])
MASK = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])


def loaded(folder: Path, family: str, **fields: Any) -> Loaded:
    return load_checkpoint(write(folder, family, **fields), dtype=torch.float64)


def some_heads(network: Network) -> dict[str, dict[int, list[int]]]:
    """Others in every layer: a whole group of key and value head and its readers, or one reader of each."""
    removed: dict[str, dict[int, list[int]]] = {}
    for part, layers in attentions(network).items():
        removed[part] = {}
        for layer, attention in enumerate(layers):
            groups = attention.num_kv_heads
            size = attention.num_heads // groups
            if size > 1 and layer % 2:
                removed[part][layer] = [group * size + group % size for group in range(groups)]
            else:
                group = (layer + len(part)) % groups
                removed[part][layer] = list(range(group * size, (group + 1) * size))
    return removed


def zeroed(network: Network, removed: Any) -> Taps:
    """Taps that write zeros over the contexts of heads."""

    def without(heads: list[int]) -> Callable[[Tensor], Tensor]:
        def write_zeros(context: Tensor) -> Tensor:
            kept = torch.ones(context.shape[1], dtype=context.dtype)
            kept[heads] = 0
            return context * kept[:, None, None]

        return write_zeros

    listeners = {}
    for part, layers in removed.items():
        prefix = network.prefixes["decoder" if part == "cross" else part]
        sublayer = "cross_attention" if part == "cross" else "attention"
        for layer, heads in layers.items():
            listeners[f"{prefix}layers.{layer}.{sublayer}.context"] = without(list(heads))
    return Taps(listeners)


def run(network: Network, **arguments: Any) -> Tensor:
    with torch.no_grad():
        state = call(network, TEXTS, mask=MASK, **arguments).last_hidden_state
    return state if len(network.prefixes) == 2 else state[MASK]  # padding may hold anything


def assert_smaller(full: Network, smaller: Network, removed: Any) -> None:
    """Every attention has lost the rows and columns of its heads."""
    for part, layers in attentions(full).items():
        for layer, attention in enumerate(layers):
            other = attentions(smaller)[part][layer]
            assert other.num_heads == attention.num_heads - len(removed[part][layer])
            for name in "qkv":
                mine, theirs = getattr(other, name), getattr(attention, name)
                assert mine.out_features == len(mine.weight) < len(theirs.weight) or name in "kv"
    counts = [sum(p.numel() for p in each.parameters()) for each in (full, smaller)]
    assert counts[1] < counts[0]


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"bahdanau", "srupp"}))
def test_a_model_without_heads(family: str, tmp_path: Path) -> None:
    full = loaded(tmp_path, family)
    first = some_heads(full.network)
    before = copy.deepcopy(full.network.state_dict())
    smaller = prune(full, first)
    assert_smaller(full.network, smaller.network, first)
    assert_close_to_largest(run(smaller.network), run(full.network, taps=zeroed(full.network, first)), FP64)
    with pytest.raises(AssertionError):
        assert_close_to_largest(run(smaller.network), run(full.network), FP64)
    after = full.network.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())

    # Heads of the smaller one are counted anew; what was removed is told in the first numbers.
    left = {part: [each.kept for each in layers] for part, layers in attentions(smaller.network).items()}
    if not removed_heads(smaller.network):  # the config says it, so that they count from 0
        left = {
            part: [
                tuple(head for head in range(each.num_heads) if head not in first[part][layer])
                for layer, each in enumerate(layers)
            ]
            for part, layers in attentions(full.network).items()
        }
    second, both = {}, copy.deepcopy(first)
    for part, layers in attentions(smaller.network).items():
        attention = layers[0]
        size = attention.num_heads // attention.num_kv_heads
        if attention.num_kv_heads > 1:
            second[part] = {0: list(range(attention.num_heads - size, attention.num_heads))}
            both[part][0] = sorted([*both[part][0], *(left[part][0][head] for head in second[part][0])])
    smallest = prune(smaller, second)
    assert_close_to_largest(run(smallest.network), run(full.network, taps=zeroed(full.network, both)), FP64)
    if removed_heads(smallest.network):
        assert removed_heads(smallest.network) == {
            part: {layer: tuple(heads) for layer, heads in layers.items()} for part, layers in both.items()
        }

    folder = save_checkpoint(smaller, tmp_path / "smaller")
    again = load_checkpoint(folder)
    assert again.network.config == smaller.network.config
    assert removed_heads(again.network) == removed_heads(smaller.network)
    state, wanted = again.network.state_dict(), smaller.network.state_dict()
    assert state.keys() == wanted.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in wanted.items())
    assert_close_to_largest(run(again.network), run(smaller.network), FP64)


@pytest.mark.parametrize("family", ["bart", "bert", "llama", "qwen2", "t5"])
def test_even_heads_stand_in_the_fields_themselves(family: str, tmp_path: Path) -> None:
    full = loaded(tmp_path, family)
    removed = {
        part: {layer: list(range(each.num_heads // each.num_kv_heads)) for layer, each in enumerate(layers)}
        for part, layers in attentions(full.network).items()
    }
    smaller = prune(full, removed)
    assert_close_to_largest(run(smaller.network), run(full.network, taps=zeroed(full.network, removed)), FP64)
    fields = json.loads(
        (save_checkpoint(smaller, tmp_path / "s") / "config.json").read_text(encoding="utf-8")
    )
    config: Any = smaller.network.config
    # transformers' classes of Llama refuse 4 heads in 15 numbers, whatever the size of a head.
    if family in {"qwen2", "t5"}:
        assert config.num_heads == full.network.config.num_heads - len(removed[next(iter(removed))][0])
        assert not {"pruned_heads", "pruned_shapes", "auto_map"} & fields.keys()
        assert loads_in(smaller) == ("everything that takes sizes from config.json",)
        assert heads_told(smaller.network) == f"{config.num_heads} heads"
    else:
        assert config == full.network.config
        assert fields["pruned_heads"]
        assert fields["auto_map"].keys() >= {"AutoModel"}
        assert loads_in(smaller)[0] == "regard"
        assert " less " in heads_told(smaller.network)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text"])
def test_heads_that_divide_the_hidden_size_stand_in_the_fields(family: str, tmp_path: Path) -> None:
    full = loaded(tmp_path, family)
    smaller = prune(full, {0: [0, 2, 4], 1: [1, 3, 5]})
    assert (smaller.network.config.num_heads, removed_words(smaller.network)) == (3, [])
    assert removed_words(prune(full, {0: [0, 1], 1: [4, 5]}).network) == ["0.0", "0.1", "1.4", "1.5"]


def test_t5_needs_the_same_heads_in_all_layers_of_a_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = loaded(tmp_path, "t5")
    # No weight is drawn that is replaced at once: on the meta device torch would import its compiler for it.
    monkeypatch.setattr(torch.nn.init, "normal_", None)
    even = {
        "encoder": {0: [2], 1: [2]},
        "decoder": {0: [0], 1: [0], 2: [0]},
        "cross": {0: [0], 1: [1], 2: [2]},
    }
    assert removed_words(prune(full, even).network) == []
    odd = {**even, "decoder": {0: [0], 1: [0], 2: [1]}}
    smaller = prune(full, odd)
    assert len(removed_words(smaller.network)) == 8
    assert loads_in(smaller) == ("regard",)
    assert_close_to_largest(run(smaller.network), run(full.network, taps=zeroed(full.network, odd)), FP64)
    assert smaller.network.decoder.bias.table.weight.shape[1] == 3  # type: ignore[union-attr]


def test_a_table_with_projections_of_its_own() -> None:
    """DeBERTa v2's: they lose the rows of the heads as well."""
    full = network("deberta-v2", shares_projections=False).double()
    removed = {"encoder": {0: [1], 1: [0, 2]}}
    expected, whole = run(full, taps=zeroed(full, removed)), run(full)
    for layer, attention in enumerate(attentions(full)["encoder"]):
        attention.keep_heads([head for head in range(3) if head not in removed["encoder"][layer]])
        assert attention.pos_k.out_features == 5 * attention.num_heads  # type: ignore[union-attr]
    assert_close_to_largest(run(full), expected, FP64)
    assert not torch.allclose(whole, expected)


def test_gradients_reach_what_is_left(tmp_path: Path) -> None:
    """Also of the table of biases, of whose columns a layer reads some."""
    smaller = prune(loaded(tmp_path, "mpnet"), {0: [1], 1: [0, 2]}).network
    call(smaller, TEXTS).last_hidden_state.sum().backward()
    table = smaller.encoder.bias.table.weight.grad
    assert all((table[:, head] != 0).any() for head in range(3))
    for attention in attentions(smaller)["encoder"]:
        assert attention.v.weight.grad is not None


def test_negative_numbers_count_from_the_end(tmp_path: Path) -> None:
    full = loaded(tmp_path, "bert")
    assert removed_heads(prune(full, {-1: [-3]}).network) == {"encoder": {1: (0,)}}
    assert removed_heads(prune(full, {-1: [0], 1: [2, -1]}).network) == {"encoder": {1: (0, 2)}}


@pytest.mark.parametrize(
    ("family", "heads", "message"),
    [
        ("bert", {}, "at least one head, such as {0: \\[3\\]}; got none"),
        ("bert", {0: []}, "at least one head"),
        ("bert", [0, 1], "must map layers to lists of heads"),
        ("bert", {0: 1}, "must map layer 0 to a list of heads; got 1"),
        ("bert", {0: "12"}, "must map layer 0 to a list of heads"),
        ("bert", {2: [0]}, "a layer of encoder must be from 0 to 1, or negative .* got 2"),
        ("bert", {"0": [0]}, "heads must be one of encoder; got '0'"),
        ("bert", {True: [0]}, "must be from 0 to 1"),
        ("bert", {0: [3]}, r"heads\[0\] must be from 0 to 2, or negative .* got 3"),
        ("bert", {0: [1.0]}, "must be from 0 to 2"),
        ("bert", {0: [0, 1, 2]}, "leave layer 0 at least one of its 3 heads"),
        ("bert", {"cross": {0: [0]}}, "heads must be one of encoder; got 'cross'"),
        ("bert", {"encoder": [0]}, "must map layers to lists of heads; got list"),
        ("t5", {0: [0]}, "must say which attention it means.*of encoder, decoder, cross"),
        ("t5", {"cross": {1: [0, 1, 2]}}, "leave the cross-attention of layer 1 at least one"),
        ("llama", {0: [0]}, r"as many query heads each, of 2, or none; \[1, 2, 2\] would be left"),
        ("llama", {0: [0, 1, 3]}, r"\[0, 1, 2\] would be left. Remove whole groups, such as \[0, 1\]"),
        ("srupp", {"decoder": {0: [1]}}, "heads that can be cut out; its decoder attention is SruAttention"),
    ],
)
def test_what_cannot_be_removed(family: str, heads: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_heads(network(family), heads)


def test_what_is_refused_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    full = loaded(tmp_path, "bert")
    before = {name: tensor.clone() for name, tensor in full.network.state_dict().items()}
    with pytest.raises(InputError, match="leave layer 1 at least one of its 3 heads"):
        prune(full, {0: [1], 1: [0, 1, 2]})
    assert all(torch.equal(full.network.state_dict()[name], tensor) for name, tensor in before.items())


def test_a_lens_is_refused(tmp_path: Path) -> None:
    import transformers

    config = transformers.GPT2Config(vocab_size=31, n_embd=6, n_layer=2, n_head=3, n_positions=17)
    seen = lens(transformers.GPT2LMHeadModel(config).eval())
    with pytest.raises(InputError, match=r"got LensNetwork.*save_pretrained.*regard\.load"):
        prune(seen, {0: [1]})
    for ask in (lambda: save_checkpoint(seen, tmp_path / "out"), lambda: loads_in(seen)):
        with pytest.raises(InputError, match="with no edits on it; got LensNetwork"):
            ask()
    assert not (tmp_path / "out").exists()


# --- files


def test_transformers_4_wrote_no_shapes(tmp_path: Path) -> None:
    """Its checkpoints have `pruned_heads` alone."""
    smaller = prune(loaded(tmp_path, "gpt2"), {1: [0, 2]})
    folder = save_checkpoint(smaller, tmp_path / "smaller")
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert fields["pruned_heads"] == {"1": [0, 2]}
    del fields["pruned_shapes"], fields["auto_map"]
    (folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    assert_close_to_largest(run(load_checkpoint(folder).network), run(smaller.network), FP64)


@pytest.mark.parametrize(
    ("pruned", "message"),
    [
        ([1], "'pruned_heads' must be an object"),
        ({"0": [0, 1, 2]}, "leave layer 0 at least one"),
        ({"7": [0]}, "must be from 0 to 1"),
        ({"0": [9]}, "must be from 0 to 2"),
        ({"0": {"1": [2]}}, "must be one of encoder"),
        ({"first": [0]}, "layers must be numbers in quotes; got 'first'"),
        ({"0": 1}, "must map layer 0 to a list of heads"),
        ({"0": [0]}, "attention.self.query.weight .wanted .10, 15., got .15, 15"),
    ],
)
def test_fields_that_do_not_fit(pruned: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(write(tmp_path, "bert", fields={"pruned_heads": pruned}))


def test_other_code_is_refused(tmp_path: Path) -> None:
    fields = {"pruned_heads": {"0": [1]}, "auto_map": {"AutoModel": "modeling_other.Bert"}}
    with pytest.raises(CheckpointError, match="auto_map"):
        load_checkpoint(write(tmp_path, "bert", fields=fields))


def test_what_goes_along(tmp_path: Path) -> None:
    labels = {"0": "no", "1": "yes"}
    full = tmp_path / "full"
    full.mkdir()
    write(full, "bert", fields={"id2label": labels, "bos_token_id": 3, "transformers_version": "4.0"})
    write_tokenizer(full, 31)
    (full / "LICENSE").write_text("as you like", encoding="utf-8")
    (full / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    (full / "pytorch_model.bin").write_bytes(b"not this")
    modules = [
        {"path": ""},
        {"path": "1_Pooling"},
        {"path": "2_Normalize"},
        {"path": ".."},
        {"path": "/"},
        {},
    ]
    (full / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (full / "1_Pooling").mkdir()
    (full / "1_Pooling" / "config.json").write_text("{}", encoding="utf-8")
    folder = save_checkpoint(prune(load_checkpoint(full), {0: [1]}), tmp_path / "smaller")
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (fields["id2label"], fields["bos_token_id"], fields["dtype"]) == (labels, 3, "float32")
    assert "transformers_version" not in fields
    assert sorted(file.name for file in folder.iterdir()) == [
        "1_Pooling",
        "LICENSE",
        "README.md",
        "config.json",
        "model.safetensors",
        "modeling_regard_pruned.py",
        "modules.json",
        "tokenizer.json",
    ]
    assert (folder / "1_Pooling" / "config.json").is_file()
    again = load_checkpoint(folder)
    assert again.tokenizer is not None
    assert 'license: "mit"' in (folder / "README.md").read_text(encoding="utf-8")
    assert "without 1 of 6 heads" in (folder / "README.md").read_text(encoding="utf-8")


def test_a_model_that_lost_nothing_is_saved_too(tmp_path: Path) -> None:
    full = loaded(tmp_path, "bert")
    folder = save_checkpoint(full, tmp_path / "copy")
    assert load_checkpoint(folder).network.config == full.network.config
    assert not (folder / "modeling_regard_pruned.py").exists()
    assert_close_to_largest(run(load_checkpoint(folder).network), run(full.network), FP64)


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    smaller = prune(loaded(there, "bert"), {0: [1]})
    there.rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        save_checkpoint(smaller, tmp_path / "smaller")
    assert not (tmp_path / "smaller").exists()


def test_an_edited_model_is_refused() -> None:
    model = regard.load()
    edited = model.edited(regard.Zero("head", layer=3, head=5))
    edited.trace("a river")
    with pytest.raises(InputError, match="Of an edited model take the one that was edited"):
        edited.prune({0: [1]})
    assert "12 heads" in repr(edited)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    full = loaded(tmp_path, "bert")
    for name in ("folder", "file"):
        there = tmp_path / name
        there.mkdir() if name == "folder" else there.write_text("mine", encoding="utf-8")
        with pytest.raises(OutputError, match="exists already; choose a new folder"):
            save_checkpoint(full, there)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OutputError, match="cannot be written"):
        save_checkpoint(full, tmp_path / "no" / "such")
    assert sorted(tmp_path.iterdir()) == before


def test_a_write_that_breaks_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = loaded(tmp_path, "bert")
    before = sorted(tmp_path.iterdir())

    def full_disk(*_: Any, **__: Any) -> None:
        raise OutputError("no space")

    monkeypatch.setattr("regard.models._saving.write_tensors", full_disk)
    with pytest.raises(OutputError, match="no space"):
        save_checkpoint(full, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before
