"""What there is: `GET /v1/models`, liveness, readiness, metrics."""

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from regard.serving._engine import Engine
from regard.serving._errors import ApiError
from regard.serving._schema import errors
from regard.serving._service import service_of

router = APIRouter()

_LATELY = 5.0  # seconds


@router.get("/health", tags=["operations"])
@router.get("/health/live", tags=["operations"])
async def live() -> dict[str, Any]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/health/ready", responses=errors(503), tags=["operations"])
async def ready(request: Request) -> dict[str, Any]:
    """Every model in memory computes: shown by work that was done lately, else by running it."""
    service = service_of(request)
    if service.draining:
        raise ApiError(503, "the server is stopping.", code="draining")
    service.check()
    for engine in service.engines.values():
        if engine.dead is not None:
            raise ApiError(503, f"{engine.name} has ended.", code="engine_dead")
        if engine.is_started:
            await _check(engine)
    return {"status": "ok"}


@router.get("/metrics", response_class=PlainTextResponse, tags=["operations"])
async def metrics(request: Request) -> PlainTextResponse:
    """What Prometheus reads."""
    return PlainTextResponse(service_of(request).metrics.text(), media_type=CONTENT_TYPE_LATEST)


async def _check(engine: Engine) -> None:
    if not engine.is_loaded:
        raise ApiError(503, f"{engine.name} is being loaded.", code="loading")
    if engine.is_idle and time.monotonic() - engine.worked > _LATELY:
        await engine.embed(["ready"])


@router.get("/v1/models", tags=["OpenAI"])
async def models(request: Request) -> dict[str, Any]:
    """List the models; the first is that of requests that name none."""
    return {"object": "list", "data": [_told(each) for each in service_of(request).engines.values()]}


@router.get("/v1/models/{name:path}", responses=errors(), tags=["OpenAI"])
async def model(name: str, request: Request) -> dict[str, Any]:
    """Describe one model."""
    return _told(service_of(request).engine(name))


def _told(engine: Engine) -> dict[str, Any]:
    told = {"id": engine.name, "object": "model", "created": 0, "owned_by": "regard"}
    if engine.is_loaded:
        embedder = engine.embedder
        computed = str(embedder.computed)
        told |= {"max_tokens": embedder.limit, "dimensions": engine.width, "computed": computed}
        told |= {"all_dimensions": engine.dimensions}
    return told
