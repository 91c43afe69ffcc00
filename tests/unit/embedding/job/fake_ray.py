"""What stands for Ray: actors that run here, one call at a time, and die when they are told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
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
        made: the instance.
    """

    def __init__(self, ray: FakeRay, made: Any) -> None:
        self.ray, self.made = ray, made
        self.number = len(ray.actors)
        self.calls: deque[tuple[Callable[..., Any], tuple[Any, ...], list[Ref]]] = deque()
        self.dead = False
        ray.actors.append(self)

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any, returns: int = 1) -> Any:
            refs = [Ref() for _ in range(returns)]
            if self.dead:
                _fail(refs, RayError("The actor is dead."))
            else:
                self.calls.append((getattr(self.made, name), arguments, refs))
            return refs[0] if returns == 1 else refs

        def options(num_returns: int) -> Any:
            return SimpleNamespace(remote=lambda *arguments: remote(*arguments, returns=num_returns))

        return SimpleNamespace(remote=remote, options=options)

    def step(self) -> None:
        """Does the next call; or dies, if that is what the test wants."""
        call, arguments, refs = self.calls.popleft()
        if self.ray.dies(self, call.__name__, arguments):
            self.die()
            _fail(refs, RayError("The actor died unexpectedly.\nclass_name: Worker"))
            return
        try:
            found = call(*arguments)
        except Exception as error:
            _fail(refs, RayTaskError(error))
            return
        for ref, value in zip(refs, [found] if len(refs) == 1 else found, strict=True):
            ref.there, ref.value = True, value

    def die(self) -> None:
        self.dead = True
        while self.calls:
            _fail(self.calls.popleft()[2], RayError("The actor died unexpectedly."))


def _fail(refs: Iterable[Ref], error: Exception) -> None:
    for ref in refs:
        ref.there, ref.error = True, error


class FakeRay:
    """The part of the module `ray` that a job uses.

    Args:
        cpus: of each node.
        dies: whether an actor dies of a call, given the actor, the method's name and the arguments.
        order: which of the actors with something to do goes on.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(
        self,
        *,
        cpus: Iterable[int] = (2,),
        dies: Callable[[Actor, str, tuple[Any, ...]], bool] = lambda *call: False,
        order: Callable[[list[Actor]], Actor] = lambda busy: busy[0],
    ) -> None:
        self.cpus, self.dies, self.order = list(cpus), dies, order
        self.actors: list[Actor] = []
        self.asked: dict[str, Any] = {}
        self.started: dict[str, Any] | None = None
        self.is_down = False
        self.waits = 0

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        self.started = options

    def shutdown(self) -> None:
        self.is_down = True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": float(count)}} for count in self.cpus]

    def remote(self, **options: Any) -> Callable[[type], Any]:
        self.asked = options

        def of(kind: type) -> Any:
            return SimpleNamespace(remote=lambda *arguments: Actor(self, kind(*arguments)))

        return of

    def kill(self, actor: Actor) -> None:
        actor.die()

    def wait(self, refs: list[Ref], *, num_returns: int, timeout: float) -> tuple[list[Ref], list[Ref]]:
        assert num_returns == 1
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
