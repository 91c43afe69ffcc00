"""Blocks that are embedded by workers which die, are refused, and lose what they have done."""

from __future__ import annotations

import itertools
import random
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import InputError, MissingExtraError, RegardError
from regard.embedding.job import Columns, Inputs, Piece, RayWorkers, Summary, run
from regard.embedding.job._ray import Worker
from unit.embedding.job.fake_ray import Actor, FakeRay
from unit.embedding.job.processes import content
from unit.embedding.job.works import Hashed

SETTLED = {"layer": -1, "precision": "float32"}


class Settled(Hashed):
    """A work that obeys what was settled."""

    def __init__(self, settled: Mapping[str, Any] | None = None) -> None:
        super().__init__(settled or SETTLED)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    lines = ["refuse this" if n % 11 == 5 else f"text {n} of the river" for n in range(150)]
    lines[32:40] = [""] * 8  # a whole shard without a text
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def whole(texts: Path, tmp_path: Path) -> dict[str, bytes]:
    embed(texts, tmp_path / "whole")
    return content(tmp_path / "whole")


def embed(texts: Path, out: Path, workers: RayWorkers | None = None, **options: Any) -> Summary:
    return run(Inputs([texts], Columns()), out, Settled, shard_rows=8, spread=workers, **options)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")  # workers set it

    def put(ray: FakeRay) -> FakeRay:
        monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
        return ray

    return put


@pytest.mark.parametrize(("workers", "seed"), [(1, 0), (2, 1), (5, 2), (5, 3)])
def test_in_whatever_order_they_are_done(
    texts: Path, tmp_path: Path, whole: dict[str, bytes], use: Any, workers: int, seed: int
) -> None:
    draw = random.Random(seed)
    ray = use(FakeRay(order=draw.choice))
    with RayWorkers(Settled, workers=workers) as spread:
        summary = embed(texts, tmp_path / "out", spread)
    assert content(tmp_path / "out") == whole
    assert summary.rows == 150
    assert len(ray.actors) == workers
    assert ray.asked == {"num_cpus": 1, "max_restarts": -1, "max_task_retries": 2}
    assert ray.is_down


@pytest.mark.parametrize("seed", range(3))
def test_workers_that_die_are_started_again(
    texts: Path, tmp_path: Path, whole: dict[str, bytes], use: Any, seed: int
) -> None:
    draw = random.Random(seed)
    dead: list[Actor] = []

    def dies(actor: Actor, texts: Sequence[str]) -> bool:
        if actor not in dead and draw.random() < 0.2:
            dead.append(actor)
            return True
        return False

    ray = use(FakeRay(order=draw.choice, dies=dies))
    told: list[str] = []
    with RayWorkers(Settled, workers=3, tell=told.append) as spread:
        embed(texts, tmp_path / "out", spread)
    assert content(tmp_path / "out") == whole
    assert len(dead) >= 2
    assert len(ray.actors) == 3


def test_a_death_is_told(texts: Path, tmp_path: Path, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = itertools.chain([7, 7, 7], itertools.repeat(8))
    monkeypatch.setattr("regard.embedding.job._ray.os.getpid", lambda: next(processes))
    use(FakeRay())
    told: list[str] = []
    work = Settled()
    with RayWorkers(Settled, workers=1, tell=told.append) as spread:
        for _ in spread(work, Inputs([texts], Columns()).blocks(shard_rows=8, characters=500)):
            pass
    host = socket.gethostname()
    assert told[1:] == [f"the worker with process 7 on {host} died; its rows are embedded again"]


def test_a_block_that_kills_every_worker_ends_the_job(texts: Path, tmp_path: Path, use: Any) -> None:
    def dies(actor: Actor, texts: Sequence[str]) -> bool:
        return "text 57 of the river" in texts

    ray = use(FakeRay(dies=dies))
    told = r"3 workers in a row died of rows 56 to 63 \(The actor died unexpectedly\.\)\. If it was for"
    with RayWorkers(Settled, workers=2) as spread, pytest.raises(RegardError, match=told):
        embed(texts, tmp_path / "out", spread)
    assert ray.is_down
    assert (tmp_path / "out/part-00003.parquet").exists()


def test_workers_that_cannot_start_are_given_up(texts: Path, tmp_path: Path, use: Any) -> None:
    ray = use(FakeRay(dies=lambda actor, texts: not texts))
    with RayWorkers(Settled, workers=2) as spread, pytest.raises(RegardError, match="3 workers died there"):
        embed(texts, tmp_path / "out", spread)
    assert [actor.deaths.total() for actor in ray.actors] == [3, 3]


class Other(Settled):
    """A work that is not what was settled: on every second worker, with other weights."""

    count = 0

    def __init__(self, settled: Mapping[str, Any] | None = None) -> None:
        super().__init__({**(settled or SETTLED), "model": "abc"})
        Other.count += 1
        if Other.count % 2:
            self.settled = {**self.settled, "model": "xyz"}


def test_a_worker_with_another_model_is_refused(
    texts: Path, tmp_path: Path, use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Other, "count", 0)
    inputs = Inputs([texts], Columns())
    run(inputs, tmp_path / "whole", lambda earlier: Settled({**SETTLED, "model": "abc"}), shard_rows=8)

    ray = use(FakeRay())
    told: list[str] = []
    with RayWorkers(Other, workers=4, tell=told.append) as spread:
        inputs = Inputs([texts], Columns())
        run(
            inputs,
            tmp_path / "out",
            lambda earlier: Settled({**SETTLED, "model": "abc"}),
            shard_rows=8,
            spread=spread,
        )
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    [refused] = [each for each in told if "refused" in each]  # once for a host
    assert refused == f"{socket.gethostname()} is refused: model is 'xyz' there and 'abc' here"
    assert len(ray.actors) == 4


def test_a_worker_that_comes_back_on_another_node_is_refused(
    texts: Path, tmp_path: Path, whole: dict[str, bytes], use: Any
) -> None:
    died: list[Actor] = []

    class Moved(Settled):
        def __init__(self, settled: Any) -> None:
            super().__init__({**settled, "model": "xyz"} if died else settled)

    def dies(actor: Actor, texts: Sequence[str]) -> bool:
        if not died and "text 57 of the river" in texts:
            died.append(actor)
            return True
        return False

    ray = use(FakeRay(dies=dies, order=random.Random(0).choice))
    told: list[str] = []
    with RayWorkers(Moved, workers=2, tell=told.append) as spread:
        embed(texts, tmp_path / "out", spread)
    assert content(tmp_path / "out") == whole
    assert ray.killed[:1] == died
    assert sum("is refused: model is 'xyz' there" in each for each in told) == 1


def refused(texts: Path, out: Path, workers: Any = Settled) -> str:
    with (
        RayWorkers(workers, workers=2) as spread,
        pytest.raises(RegardError, match="no worker can do what the manifest states") as caught,
    ):
        embed(texts, out, spread)
    assert not list(out.glob("*.parquet"))
    return str(caught.value)


def test_nobody_obeys(texts: Path, tmp_path: Path, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use(FakeRay())

    class Late(Settled):
        def __init__(self, settled: Any) -> None:
            raise InputError("no such model here.")

    assert "no such model here." in refused(texts, tmp_path / "a", Late)
    worker = "regard.embedding.job._ray"

    class Elsewhere(Worker):
        """On a machine where other versions are installed than are asked for."""

        def __init__(self, open_work: Any, settled: Any, threads: int, stated: Any) -> None:
            super().__init__(open_work, settled, threads, {**stated, "torch": "1.0"})

    with monkeypatch.context() as patch:
        patch.setattr(f"{worker}.cores", lambda: 0)
        assert "threads is 1, and it may use 0 cores" in refused(texts, tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr(f"{worker}.Worker", Elsewhere)
        told = refused(texts, tmp_path / "c")
        assert "here. Install the same versions on all nodes" in told
        assert "and '1.0' here" in told
    with monkeypatch.context() as patch:
        patch.setattr(f"{worker}.is_native", lambda dtype: False)
        patch.setitem(SETTLED, "precision", "bfloat16")
        assert "no arithmetic for bfloat16; give --precision float32" in refused(texts, tmp_path / "d")


def test_another_processor_is_told_of(
    texts: Path, tmp_path: Path, use: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(Worker):
        def embed(self, texts: Sequence[str]) -> tuple[dict[str, Any], Piece | None]:
            about, piece = super().embed(texts)
            return about | {"processor": "z80"}, piece

    use(FakeRay())
    monkeypatch.setattr("regard.embedding.job._ray.Worker", Elsewhere)
    told: list[str] = []
    with RayWorkers(Settled, workers=2, tell=told.append) as spread:
        embed(texts, tmp_path / "out", spread)
    assert sum("another processor, z80 and not" in each for each in told) == 1


def test_an_error_of_the_work_ends_the_job(texts: Path, tmp_path: Path, use: Any) -> None:
    class Broken(Settled):
        def embed(self, texts: Sequence[str]) -> Piece:
            raise InputError("not these")

    ray = use(FakeRay())
    with RayWorkers(Broken, workers=2) as spread, pytest.raises(InputError, match="not these"):
        embed(texts, tmp_path / "out", spread)
    assert ray.is_down
    assert ray.killed == ray.actors


def test_what_is_under_way_is_bounded(texts: Path, tmp_path: Path, use: Any) -> None:
    def the_others(busy: list[Actor]) -> Actor:
        """The first worker is the last to embed anything."""
        others = [each for each in busy if each.number or not each.calls[0][0][0]]
        return (others or busy)[0]

    ray = use(FakeRay(order=the_others))
    with RayWorkers(Settled, workers=2) as spread:
        read = []

        def blocks() -> Iterator[Any]:
            for block in Inputs([texts], Columns()).blocks(shard_rows=8, characters=500):
                read.append(block)
                yield block

        written = 0
        for _ in spread(Settled(), blocks()):
            assert len(read) - written <= 3 * 2
            written += 1
    assert written == len(read) == 19
    assert ray.is_down


def test_how_many_workers(texts: Path, tmp_path: Path, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.embedding.job._ray._check_address", lambda address: None)
    monkeypatch.setattr("regard.embedding.job._ray.cores", lambda: 3)
    ray = use(FakeRay())
    with RayWorkers(Settled) as spread:
        embed(texts, tmp_path / "a", spread)
    assert len(ray.actors) == 3
    assert ray.started["address"] == "local"
    assert ray.started["num_cpus"] == 3
    ray = use(FakeRay(cpus=[4, 0, 1]))
    with RayWorkers(Settled, address="head:6379") as spread:
        embed(texts, tmp_path / "b", spread)
    assert len(ray.actors) == 5
    assert ray.started["address"] == "head:6379"
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    monkeypatch.setitem(SETTLED, "threads", 5)  # which `Hashed` takes for itself
    with RayWorkers(Settled) as spread, pytest.raises(RegardError, match=r"the 5 cores .*the largest has 4"):
        embed(texts, tmp_path / "c", spread)
    with (
        RayWorkers(Settled, address="local") as spread,
        pytest.raises(InputError, match="threads is 5, and this machine has 3 cores for Ray"),
    ):
        embed(texts, tmp_path / "d", spread)
    with pytest.raises(InputError, match="workers must be"):
        RayWorkers(Settled, workers=0)


def test_nothing_to_do_starts_nothing(texts: Path, tmp_path: Path, use: Any) -> None:
    embed(texts, tmp_path / "out")
    ray = use(FakeRay())
    with RayWorkers(Settled) as spread:
        assert embed(texts, tmp_path / "out", spread).before == 150
    assert ray.started is None


def test_nobody_answers(texts: Path, tmp_path: Path, use: Any) -> None:
    use(FakeRay())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for each in (address, f"ray://{address}"):
            with (
                RayWorkers(Settled, address=each) as spread,
                pytest.raises(RegardError, match=f"nobody answers at {each} .*ray start --head"),
            ):
                embed(texts, tmp_path / "out", spread)


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install ray"):
        RayWorkers(Settled)
