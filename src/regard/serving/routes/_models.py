"""`GET /v1/models`."""

from typing import Any

from fastapi import APIRouter, Request

from regard.serving._engine import Engine
from regard.serving._schema import errors
from regard.serving._service import service_of

router = APIRouter()


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
