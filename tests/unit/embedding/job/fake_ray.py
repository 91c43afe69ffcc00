"""What stands for Ray: actors that run here, one call at a time, and die when they are told."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


class Ref:
    """What will be there: `compute` is called when it is waited for."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: Exception | None = None
        self.there = False


class Actor:
    """Wraps an instance; calls are done in turn, when somebody waits.

    Args:
        ray: that it belongs to.
        make: gives the instance, again after each death.
        retries: how often a call is done again of which it died.
    """

    def __init__(self, ray: FakeRay, make: Callable[[], Any], retries: int) -> None:
        self.ray, self.make, self.retries = ray, make, retries
        self.made = make()
        self.number = len(ray.actors)
        self.calls: deque[tuple[tuple[Any, ...], Ref]] = deque()
        self.deaths: Counter[int] = Counter()
        ray.actors.append(self)

    @property
    def embed(self) -> Any:
        def remote(*arguments: Any) -> Ref:
            self.calls.append((arguments, Ref()))
            return self.calls[-1][1]

        return SimpleNamespace(remote=remote)

    def step(self) -> None:
        """Does the next call; or dies, if that is what the test wants, and is started again."""
        arguments, ref = self.calls[0]
        if self.ray.dies(self, arguments[0]):
            self.made = self.make()
            self.deaths[id(ref)] += 1
            if self.deaths[id(ref)] <= self.retries:
                return
            ref.error = RayError("The actor died unexpectedly.\nclass_name: Worker")
        else:
            try:
                ref.value = self.made.embed(*arguments)
            except Exception as error:
                ref.error = RayTaskError(error)
        ref.there = True
        self.calls.popleft()


class FakeRay:
    """The part of the module `ray` that a job uses.

    Args:
        cpus: of each node.
        dies: whether an actor dies of a call, given the actor and the texts.
        order: which of the actors with something to do goes on.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(
        self,
        *,
        cpus: Iterable[int] = (2,),
        dies: Callable[[Actor, Sequence[str]], bool] = lambda actor, texts: False,
        order: Callable[[list[Actor]], Actor] = lambda busy: busy[0],
    ) -> None:
        self.cpus, self.dies, self.order = list(cpus), dies, order
        self.actors: list[Actor] = []
        self.asked: dict[str, Any] = {}
        self.started: dict[str, Any] | None = None
        self.is_down = False
        self.waits = 0
        self.killed: list[Actor] = []

    def init(self, **options: Any) -> None:
        self.started = options

    def shutdown(self) -> None:
        self.is_down = True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": float(count)}} for count in self.cpus]

    def remote(self, **options: Any) -> Callable[[type], Any]:
        self.asked = options

        def of(kind: type) -> Any:
            retries = options["max_task_retries"]
            return SimpleNamespace(remote=lambda *arguments: Actor(self, lambda: kind(*arguments), retries))

        return of

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor)

    def wait(
        self, refs: list[Ref], *, num_returns: int, timeout: float, fetch_local: bool
    ) -> tuple[list[Ref], list[Ref]]:
        assert num_returns == 1
        assert not fetch_local
        self.waits += 1
        assert self.waits < 100_000
        busy = [actor for actor in self.actors if actor.calls]
        while busy and not any(ref.there for ref in refs):
            self.order(busy).step()
            busy = [actor for actor in self.actors if actor.calls]
        there = [ref for ref in refs if ref.there][:1]
        return there, [ref for ref in refs if ref not in there]

    def get(self, ref: Ref) -> Any:
        assert ref.there
        if ref.error is not None:
            raise ref.error
        return ref.value
