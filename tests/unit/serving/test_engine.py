"""An engine: turns that are fair, errors that stay with who made them, and no one who waits in vain."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from regard.core.errors import InputError
from regard.embedding import Embedder, Request, _engine_choice
from regard.serving import Settings
from regard.serving._engine import Engine
from regard.serving._jobs import _SHORT, _UNREAD, TURN_TOKENS, EmbedJob, shares
from regard.serving._limits import ApiError
from regard.serving._operations import Metrics
from regard.serving._service import Service
from unit.models.folders import write, write_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write(tmp_path_factory.mktemp("tiny"), "bert")
    write_tokenizer(path, 31)
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> regard.Model:
    return regard.load(folder)


@pytest.fixture
def engine(model: regard.Model) -> Iterator[Engine]:
    engine = Engine("tiny", model, Settings(max_queue=100, timeout=5), Metrics())
    yield engine
    engine.stop()


def run(task: Coroutine[Any, Any, Any]) -> Any:
    """In a thread of its own: Playwright leaves a loop running in that of the tests."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asyncio.run, asyncio.wait_for(task, 20)).result()


class Held:
    """A function of the model that holds its thread until it is let go."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()

    def __call__(self, model: regard.Model) -> None:
        self.began.set()
        self.go.wait(20)


async def held(engine: Engine) -> tuple[Held, asyncio.Task[None]]:
    engine.start()
    while not engine.is_loaded:
        await asyncio.sleep(0.001)
    hold = Held()
    task = asyncio.create_task(engine.call(hold, tokens=1))
    while not hold.began.is_set():
        await asyncio.sleep(0.001)
    return hold, task


def jobs(model: regard.Model, *counts: int) -> list[EmbedJob]:
    async def made() -> list[EmbedJob]:
        return [EmbedJob(["w1 w2 w3 w4 w5 w6 w7 w8"] * count, "refuse") for count in counts]

    asked = run(made())
    embedder = Embedder(model.loaded, Request())
    for job in asked:
        job.read(embedder, 10**6)
    return asked


def counts(*arguments: Any) -> dict[EmbedJob, int]:
    return {job: len(part) for job, part in shares(*arguments).items()}


def test_half_of_a_turn_goes_to_short_requests_and_the_rest_to_the_oldest(model: regard.Model) -> None:
    old, short, large, small = jobs(model, 100, 1, 1000, 3)
    rows = TURN_TOKENS // short.passages[0].tokens
    assert counts([old, short, large, small]) == {short: 1, small: 3, old: rows - 4}
    assert counts([old, large]) == {old: 100 - (rows - 4), large: 2 * rows - 100 - 4}
    assert counts([large]) == {large: rows}


def test_what_is_less_than_a_turn_is_shared_by_the_threads_that_are_free(model: regard.Model) -> None:
    (only,) = jobs(model, 40)
    assert [counts([only], threads) for threads in (2, 1)] == [{only: 20}, {only: 20}]
    few, whole = jobs(model, 4, 30)
    assert counts([few], 8) == {few: 4}  # a quarter of a turn stays together
    assert counts([whole], 8) == {whole: TURN_TOKENS // 4 // whole.passages[0].tokens}


def test_parts_that_end_in_any_order_are_put_together_in_theirs(model: regard.Model) -> None:
    (job,) = jobs(model, 3)
    parts = [job.take(0.0, least=least) for least in (1, 2)]
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert job.put(parts[1], vectors[1:]) is None
    made = job.put(parts[0], vectors[:1])
    assert made is not None
    np.testing.assert_array_equal(made.vectors, vectors)


def test_a_turn_is_never_empty(model: regard.Model) -> None:
    asked = jobs(model, *[3] * 5000)
    assert sum(map(len, shares(asked).values())) > 0


def test_vectors_do_not_depend_on_who_else_asks(engine: Engine, model: regard.Model) -> None:
    texts = [f"w{place % 31} w{place % 7}" for place in range(200)]

    async def all_at_once() -> list[Any]:
        hold, task = await held(engine)
        asked = [asyncio.create_task(engine.embed([text])) for text in texts[:20]]
        await asyncio.sleep(0.01)
        hold.go.set()
        await task
        return await asyncio.gather(*asked)

    made = run(all_at_once())
    expected = model.embed(texts[:20])
    np.testing.assert_allclose([each.vectors[0] for each in made], expected, atol=2e-6)


def test_what_waits_is_bounded_and_who_leaves_is_not_counted(engine: Engine) -> None:
    async def fill() -> None:
        hold, task = await held(engine)
        asked = [asyncio.create_task(engine.call(lambda model: 1, tokens=49)) for _ in range(2)]
        await asyncio.sleep(0)
        assert engine.queue.tokens == 99
        with pytest.raises(ApiError) as refused:
            await engine.embed(["w1"])
        assert (refused.value.status, refused.value.code) == (429, "queue_full")
        assert refused.value.retry_after is not None
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert engine.queue.tokens == 1
        hold.go.set()
        await task
        assert engine.queue.tokens == 0

    run(fill())


def test_a_wrong_text_fails_its_own_request_only(engine: Engine) -> None:
    async def both() -> list[Any]:
        hold, task = await held(engine)
        calls = [engine.embed(["w1"]), engine.embed(["w2", ""]), engine.embed(["w3"])]
        asked = [asyncio.create_task(each) for each in calls]
        await asyncio.sleep(0.01)
        hold.go.set()
        await task
        return await asyncio.gather(*asked, return_exceptions=True)

    first, wrong, last = run(both())
    assert (len(first.vectors), len(last.vectors)) == (1, 1)
    assert isinstance(wrong, ApiError)
    assert "input[1]" in wrong.message


def test_an_error_of_the_arithmetic_stays_with_one_request(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Embedder.vectors

    def vectors(self: Embedder, texts: Any, **named: Any) -> Any:
        if any(len(text.ids) == 3 for text in texts):
            raise RuntimeError("no memory")
        return real(self, texts, **named)

    async def both() -> list[Any]:
        hold, task = await held(engine)
        asked = [asyncio.create_task(engine.embed([text])) for text in ("w1", "w1 w2 w3", "w5")]
        await asyncio.sleep(0.01)
        monkeypatch.setattr(Embedder, "vectors", vectors)
        hold.go.set()
        await task
        return await asyncio.gather(*asked, return_exceptions=True)

    first, wrong, last = run(both())
    assert isinstance(wrong, RuntimeError)
    assert (len(first.vectors), len(last.vectors)) == (1, 1)


def test_each_core_takes_what_waits_and_functions_run_alone(
    model: regard.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests are computed at once: each waits in the arithmetic for the other to come there."""
    monkeypatch.setattr(_engine_choice, "cores", lambda: 2)
    engine = Engine("tiny", model, Settings(timeout=5), Metrics())
    real, both, have_met, at_once = Embedder.vectors, threading.Barrier(2, timeout=5), threading.Event(), 0
    alone: list[int] = []

    def vectors(self: Embedder, texts: Any, **named: Any) -> Any:
        nonlocal at_once
        at_once += 1
        if not have_met.is_set():
            both.wait()
            have_met.set()
        made = real(self, texts, **named)
        at_once -= 1
        return made

    async def asked() -> list[Any]:
        hold, task = await held(engine)
        monkeypatch.setattr(Embedder, "vectors", vectors)
        texts = [asyncio.create_task(engine.embed(["w1 w2 w3 w4 w5"] * 30)) for _ in range(2)]
        await asyncio.sleep(0.01)
        hold.go.set()
        await task
        calls = [engine.call(lambda model: alone.append(at_once), tokens=1) for _ in range(5)]
        return (await asyncio.gather(*texts, *calls))[:2]

    first, second = run(asked())
    engine.stop()
    assert (len(first.vectors), len(second.vectors), both.broken) == (30, 30, False)
    assert alone == [0] * 5


def test_streams_take_turns(engine: Engine) -> None:
    order: list[str] = []

    def steps(name: str) -> Any:
        def generator(model: regard.Model) -> Generator[str, None, None]:
            for place in range(3):
                order.append(name)
                yield f"{name}{place}"

        return generator

    async def read(name: str) -> list[str]:
        return [piece async for piece in engine.stream(steps(name), tokens=1)]

    async def both() -> list[Any]:
        hold, task = await held(engine)
        asked = [asyncio.create_task(read(name)) for name in "ab"]
        await asyncio.sleep(0)
        hold.go.set()
        await task
        return await asyncio.gather(*asked)

    assert run(both()) == [[f"{name}{place}" for place in range(3)] for name in "ab"]
    assert "".join(order) == "ababab"


def test_a_stream_that_is_left_is_closed(engine: Engine) -> None:
    closed = threading.Event()

    def endless(model: regard.Model) -> Generator[int, None, None]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    async def read() -> None:
        pieces = engine.stream(endless, tokens=1)
        await anext(pieces)
        await pieces.aclose()
        for _ in range(2):  # the stream's next turn may come after that of the first
            await engine.call(lambda model: None, tokens=1)

    run(read())
    assert closed.is_set()


def test_a_stream_that_nobody_reads_is_not_written_on(engine: Engine) -> None:
    """It waits with so many pieces, and goes on from there; or ends, where who asked has left."""
    made: list[int] = []
    closed = threading.Event()

    def counting(model: regard.Model) -> Generator[int, None, None]:
        try:
            for place in range(2000):
                made.append(place)
                yield place
        finally:
            closed.set()

    async def waits() -> int:
        seen = -1
        while len(made) > seen:
            seen = len(made)
            await asyncio.sleep(0.1)
        return seen

    async def read() -> None:
        pieces = engine.stream(counting, tokens=1)
        assert await anext(pieces) == 0
        assert await waits() in (_UNREAD, _UNREAD + 1)
        half = [await anext(pieces) for _ in range(_UNREAD // 2)]
        assert _UNREAD + _UNREAD // 2 <= await waits() <= 2 * _UNREAD
        assert half + [piece async for piece in pieces] == list(range(1, 2000))
        made.clear()
        closed.clear()
        again = engine.stream(counting, tokens=1)
        await anext(again)
        assert await waits() <= _UNREAD + 1
        await again.aclose()
        for _ in range(2):
            await engine.call(lambda model: None, tokens=1)

    run(read())
    assert closed.is_set()


def test_errors_reach_the_caller(engine: Engine) -> None:
    def wrong(model: regard.Model) -> Generator[int, None, None]:
        yield 1
        raise InputError("no")

    async def calls() -> None:
        with pytest.raises(InputError):
            await engine.call(lambda model: model.embed([""]), tokens=1)
        pieces = engine.stream(wrong, tokens=1)
        assert await anext(pieces) == 1
        with pytest.raises(InputError):
            await anext(pieces)

    run(calls())


def test_nobody_waits_for_a_dead_thread(engine: Engine) -> None:
    def kill(model: regard.Model) -> None:
        raise SystemExit

    async def calls() -> list[Any]:
        hold, task = await held(engine)
        asked = [engine.call(kill, tokens=1), engine.call(lambda model: 1, tokens=1)]
        tasks = [asyncio.create_task(each) for each in asked]
        await asyncio.sleep(0.01)
        hold.go.set()
        await task
        return [*await asyncio.gather(*tasks, return_exceptions=True), await later()]

    async def later() -> Any:
        try:
            await engine.embed(["w1"])
        except ApiError as error:
            return error

    assert {error.status for error in run(calls())} == {503}
    assert isinstance(engine.dead, SystemExit)


def test_that_a_thread_has_died_is_known_before_another_takes_what_waits(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, known = engine.queue.done, list[BaseException | None]()

    def done() -> None:
        known.append(engine.dead)
        real()

    def kill(model: regard.Model) -> None:
        raise SystemExit

    monkeypatch.setattr(engine.queue, "done", done)
    with pytest.raises(ApiError, match="thread has ended"):
        run(engine.call(kill, tokens=1))
    assert [type(each) for each in known] == [SystemExit]


def test_a_computation_that_hangs_is_a_dead_thread(model: regard.Model) -> None:
    engine = Engine("tiny", model, Settings(stall=0.05), Metrics())

    async def hang() -> int:
        hold, task = await held(engine)
        await asyncio.sleep(0.1)
        engine.check()
        try:
            await task
        except ApiError as error:
            return error.status
        finally:
            hold.go.set()
        return 200

    assert run(hang()) == 503
    engine.stop()


def test_time_runs_out(model: regard.Model) -> None:
    engine = Engine("tiny", model, Settings(timeout=0.5), Metrics())

    async def late() -> list[Any]:
        hold, task = await held(engine)
        found = await asyncio.gather(task, engine.embed(["w1"]), return_exceptions=True)
        hold.go.set()
        return found

    begun, waiting = run(late())
    assert (begun.status, waiting.status) == (504, 503)
    engine.stop()


def test_the_time_is_a_request_s_and_not_a_piece_s(model: regard.Model) -> None:
    engine = Engine("tiny", model, Settings(timeout=0.5), Metrics())

    def endless(model: regard.Model) -> Generator[int, None, None]:
        while True:
            time.sleep(0.02)
            yield 1

    async def read() -> tuple[list[int], ApiError]:
        pieces: list[int] = []
        try:
            async for piece in engine.stream(endless, tokens=1):
                pieces.append(piece)
        except ApiError as late:
            return pieces, late
        raise AssertionError("it goes on")

    begun = time.monotonic()
    pieces, late = run(read())
    assert (late.status, bool(pieces)) == (504, True)
    assert time.monotonic() - begun < 5
    engine.stop()


def test_windows_of_a_long_text_count_once(folder: Path, model: regard.Model) -> None:
    """They overlap; what a request may have are tokens of its texts."""
    text = " ".join(f"w{place % 31}" for place in range(60))
    for most in (60, 59):
        engine = Engine("tiny", model, Settings(max_tokens=most), Metrics())
        engine.start()
        if most == 60:
            made = run(engine.embed([text], overlong="windows"))
            (passage,) = made.passages
            assert (passage.tokens, sum(passage.rows) > 60) == (60, True)
        else:
            with pytest.raises(ApiError, match="input has 60 tokens, and a request may have 59"):
                run(engine.embed([text], overlong="windows"))
        engine.stop()


def test_models_come_and_go_within_the_bound(folder: Path, tmp_path: Path) -> None:
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    names = {name: str(folder) for name in "abc"}
    with pytest.raises(InputError, match="max_memory must be at least"):
        Service(names, Settings(max_memory=size - 1))
    service = Service(names, Settings(max_memory=2 * size))
    service.start()
    assert [each.is_started for each in service.engines.values()] == [True, True, False]

    async def use() -> None:
        await service.engine("b").embed(["w1"])
        evicted = weakref.ref(service.engines["b"].model)
        service.engines["b"].kept["of it"] = evicted()
        await service.engine("a").embed(["w1"])
        hold, task = await held(service.engine("a"))
        made = await service.engine("c").embed(["w1"])
        assert made.vectors.shape == (1, service.engines["c"].width)
        assert [each.is_started for each in service.engines.values()] == [True, False, True]
        gc.collect()
        assert evicted() is None
        other, busy = await held(service.engine("c"))
        with pytest.raises(ApiError) as full:
            service.engine("b")
        assert (full.value.status, full.value.code) == (503, "memory_full")
        for each in (hold, other):
            each.go.set()
        await asyncio.gather(task, busy)
        await service.engine("b").embed(["w1"])

    run(use())
    assert [each.is_started for each in service.engines.values()] == [False, True, True]
    for engine in service.engines.values():
        engine.stop()


def test_short_requests_get_half_of_a_turn(model: regard.Model) -> None:
    """Or those of many would keep a long one waiting for ever."""
    (one,) = jobs(model, 1)
    few = max(1, round(_SHORT / one.cost / 2))
    long, *short = jobs(model, round(1.2 / one.cost), *[few] * round(4 / _SHORT))
    costs = {each: each.cost for each in (long, *short)}
    taken = shares([long, *short])
    spent = {each: cost - each.cost for each, cost in costs.items()}
    assert long in taken
    assert spent[long] == pytest.approx(0.5, abs=0.1)
    assert sum(spent[each] for each in short) == pytest.approx(0.5, abs=0.1)


def test_a_turn_that_is_hardly_filled_does_not_say_how_fast_it_is(engine: Engine) -> None:
    """A second for three tokens: what comes next would be refused for want of time."""
    engine._measure(TURN_TOKENS, time.monotonic() - 1)
    full = engine._speed
    assert full == pytest.approx(TURN_TOKENS, rel=0.05)
    engine._measure(3, time.monotonic() - 1)
    engine._measure(TURN_TOKENS // 2, time.monotonic() - 1)
    assert engine._speed == full
