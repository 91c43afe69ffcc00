"""Liveness and readiness."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from regard.serving._engine import Engine
from regard.serving._errors import ApiError
from regard.serving._service import service_of

router = APIRouter(tags=["operations"])

_PROBE = 5.0  # seconds in which an idle model embeds a word


@router.get("/health")
@router.get("/health/live")
async def live() -> dict[str, Any]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/health/ready")
async def ready(request: Request) -> dict[str, Any]:
    """Every model computes: shown by work that was done lately, else by running it."""
    service = service_of(request)
    if service.draining:
        raise ApiError(503, "the server is stopping.", code="draining")
    for engine in service.engines.values():
        await _check(engine)
    return {"status": "ok"}


async def _check(engine: Engine) -> None:
    engine.check()
    if engine.dead is not None:
        raise ApiError(503, f"{engine.name} has ended.", code="engine_dead")
    if not engine.is_loaded:
        raise ApiError(503, f"{engine.name} is being loaded.", code="loading")
    if not engine.queue.tokens:
        async with asyncio.timeout(_PROBE):
            await engine.embed(["ready"])
