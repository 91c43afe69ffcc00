"""Named points: read, written, refused; and nothing at all where nobody listens."""

import threading
from collections.abc import Callable

import pytest
import torch

from regard.core import AttentionInputs, Taps, reference_attention
from regard.core.errors import InputError

POINTS = ["embeddings.output", *(f"layers.{i}.{end}" for i in range(12) for end in ("attention.q", "output"))]


def test_a_listener_reads_the_very_tensor_and_leaves_it() -> None:
    seen: list[torch.Tensor] = []
    value = torch.randn(3)
    assert Taps({"x": seen.append}).offer("x", value) is value
    assert seen[0] is value


def test_a_listener_writes() -> None:
    taps = Taps({"x": lambda value: value * 2})
    assert taps.offer("x", torch.tensor([1.0, 3.0])).tolist() == [2.0, 6.0]
    assert taps.offer("y", torch.tensor([1.0])).tolist() == [1.0]


def test_several_listeners_are_called_in_the_order_given() -> None:
    taps = Taps(
        {"a.*": lambda value: value + 1, "*": lambda value: value * 10, "a.b": lambda value: value - 1}
    )
    assert taps.offer("a.b", torch.tensor([2.0])).tolist() == [29.0]


def test_a_written_tensor_carries_its_gradient() -> None:
    weight = torch.tensor([3.0], requires_grad=True)
    Taps({"x": lambda value: value * weight}).offer("x", torch.tensor([2.0])).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (torch.ones(2), r"\(3,\) torch.float32 on cpu; got \(2,\) torch.float32"),
        (torch.ones(1, 3), r"got \(1, 3\) torch.float32"),
        (torch.ones(3).double(), r"got \(3,\) torch.float64"),
        (torch.ones(3, device="meta"), "torch.float32 on meta"),
        ([1.0, 2.0, 3.0], "must return None or a tensor; got list"),
        (0.0, "must return None or a tensor; got float"),
    ],
)
def test_what_cannot_take_the_place_of_the_tensor_is_refused(written: object, message: str) -> None:
    taps = Taps({"x": lambda value: written}).at("layers.1")
    with pytest.raises(InputError, match=message):
        Taps({"layers.1.x": lambda value: written}).at("layers.1").offer("x", torch.ones(3))
    assert taps.offer("x", torch.ones(3)).tolist() == [1.0, 1.0, 1.0]


def test_a_record_is_shown_but_cannot_be_replaced() -> None:
    seen: list[object] = []
    record = object()
    Taps({"inputs": seen.append}).offer_readonly("inputs", record)
    assert seen == [record]
    with pytest.raises(InputError, match="listener at 'inputs' must return None"):
        Taps({"inputs": lambda value: value}).offer_readonly("inputs", record)


def test_a_pattern_matches_whole_names() -> None:
    names: list[str] = []
    taps = Taps(
        {"layers.*.attention.q": lambda value: names.append("q"), "layers.1.output": lambda value: None}
    )
    for point in POINTS:
        taps.offer(point, torch.ones(1))
    assert names == ["q"] * 12
    assert [point for point in POINTS if taps.wants(point)] == [
        *(p for p in POINTS if p.endswith("attention.q") or p == "layers.1.output")
    ]
    assert not taps.wants("layers.1.output.more")
    assert not taps.wants("more.layers.1.output")


def test_a_part_of_the_model_sees_the_listeners_from_inside() -> None:
    outer = Taps({"decoder.layers.3.attention.q": lambda value: value + 1})
    inner = outer.at("decoder").at("layers.3").at("attention")
    assert inner.wants("q")
    assert not inner.wants("k")
    assert not outer.wants("q")
    assert inner.offer("q", torch.zeros(1)).tolist() == [1.0]
    assert not outer.at("decoder").at("layers.2").at("attention").wants("q")


def test_a_pattern_that_matches_nothing_is_refused_with_the_names_there_are() -> None:
    Taps({"layers.*.output": print, "embeddings.output": print}).check(POINTS)
    with pytest.raises(
        InputError, match=r"no tap is called 'layer.0.output'.*layers.i.attention.q"
    ) as caught:
        Taps({"layers.*.output": print, "layer.0.output": print}).check(POINTS)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("layers.i.output") == 1


def test_nobody_listens_and_nothing_is_called() -> None:
    def refuse(value: object) -> None:
        raise AssertionError("called")

    taps = Taps({"elsewhere": refuse})
    value = torch.ones(1)
    assert taps.offer("here", value) is value
    taps.offer_readonly("here", value)
    assert not Taps({}).wants("here")


def test_later_changes_of_the_callers_dictionary_change_nothing() -> None:
    listeners = {"x": lambda value: value + 1}
    taps = Taps(listeners)
    listeners["y"] = lambda value: value + 1
    assert not taps.wants("y")


def test_threads_with_taps_of_their_own_do_not_meet() -> None:
    start = threading.Barrier(8)
    results: dict[int, list[float]] = {}

    def run(number: int) -> None:
        seen: list[float] = []
        taps = Taps({"layers.*.output": lambda value: seen.append(value.item()) or value + number})
        start.wait()
        value = torch.zeros(1)
        for layer in range(200):
            value = taps.at(f"layers.{layer}").offer("output", value)
        results[number] = seen

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [float(number * layer) for layer in range(200)] for number in range(8)}


def test_attention_offers_its_scores_and_weights() -> None:
    q = torch.randn(1, 2, 3, 5)
    inputs = AttentionInputs(q=q, k=q, v=q)
    plain = reference_attention(inputs)
    seen: dict[str, torch.Tensor] = {}
    reading = Taps(
        {name: lambda value, name=name: seen.update({name: value}) for name in ("scores", "weights")}
    )
    assert torch.equal(reference_attention(inputs, reading).context, plain.context)
    assert torch.equal(seen["scores"], plain.masked_scores)
    assert torch.equal(seen["weights"], plain.weights)
    even = reference_attention(inputs, Taps({"scores": torch.zeros_like}))
    torch.testing.assert_close(even.context, q.mean(2, keepdim=True).expand(-1, -1, 3, -1))
    torch.testing.assert_close(even.weights, torch.full((1, 2, 3, 3), 1 / 3))
    identity = reference_attention(inputs, Taps({"weights": lambda w: torch.eye(3).expand_as(w)}))
    torch.testing.assert_close(identity.context, q)


def test_joined_taps_are_called_one_after_the_other() -> None:
    """Also where both listen at a name, and where patterns stand between names."""
    order: list[str] = []

    def listener(name: str, factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
        def listen(value: torch.Tensor) -> torch.Tensor:
            order.append(name)
            return value * factor + 1.0

        return listen

    first = Taps({"a.x": listener("first", 2.0), "a.*": listener("pattern", 3.0)})
    others = Taps({"a.x": listener("other", 5.0), "b": listener("elsewhere", 7.0)})
    joined = first.then(others)
    inner = joined.at("a")
    assert inner.offer("x", torch.tensor([1.0])).tolist() == [51.0]
    assert order == ["first", "pattern", "other"]
    assert joined.wants("b")
    assert inner.wants("y")
    assert not joined.at("c").wants("x")
    assert first.then(None) is first
    assert not first.wants("b"), "joining changes neither"
    assert others.offer("a.x", torch.tensor([1.0])).tolist() == [6.0]


def test_joined_taps_are_all_checked() -> None:
    joined = Taps({"embeddings.output": lambda value: None}).then(
        Taps({"layer.0.output": lambda value: None})
    )
    with pytest.raises(InputError, match=r"no tap is called 'layer.0.output'"):
        joined.check(POINTS)
