"""The application: routes behind the gate, and errors in one form."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from regard._version import __version__
from regard.model import Model
from regard.serving._errors import ApiError
from regard.serving._gate import Gate
from regard.serving._service import Service
from regard.serving._settings import Settings
from regard.serving.routes import ROUTERS


def app_of(
    models: Sequence[Model] | Mapping[str, Model | str], *, settings: Settings | None = None
) -> FastAPI:
    """An ASGI application that serves models: what `regard serve` runs.

    Args:
        models: by the names that requests give, or under their own; the first is that of requests that
            name none. A name or folder in place of a model is loaded when it is asked for.
        settings: limits, keys and choices.

    Returns:
        The application; its engines start with its lifespan, or with the first request.

    Example:
        >>> import regard
        >>> from starlette.testclient import TestClient
        >>> with TestClient(app_of([regard.load()])) as client:
        ...     answer = client.post("/v1/embeddings", json={"input": "a river bank"}).json()
        >>> len(answer["data"][0]["embedding"]), answer["usage"]["prompt_tokens"]
        (384, 5)
    """
    settings = settings or Settings()
    named = models if isinstance(models, Mapping) else {model.name: model for model in models}
    service = Service(named, settings)
    exported = "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ
    app = FastAPI(
        title="regard",
        version=__version__,
        description="Embeddings, attention and the concordance of transformers. Errors are OpenAI's.",
        lifespan=_lifespan,
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        # Spans and metrics go where the environment says, if it does; of what is validated nothing is told.
        telemetry={
            "auto_configure": exported,
            "tracing": exported,
            "metrics": exported,
            "logs": False,
            "operation_spans": False,
        },
    )
    app.state.service = service
    app.add_middleware(Gate, service=service)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_plain)
    for router in ROUTERS:
        app.include_router(router)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """The API as it is: FastAPI would promise 422 where the answer is 400, and knows of no key."""
    told = app.openapi()
    told["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, methods in told["paths"].items():
        for operation in methods.values():
            operation["responses"].pop("422", None)
            if path.startswith("/v1"):
                operation["security"] = [{"key": []}, {}]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.start()
    yield
    service.requests_log.flush()
    for engine in service.engines.values():
        await asyncio.to_thread(engine.stop)


# Starlette would call plain functions on threads of a pool, where refusals wait for each other.


async def _invalid(request: Request, error: Exception) -> Response:
    """What a schema says, of the first field that is wrong, without what came, which may be long."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        told = f"the body must be JSON; {first['ctx']['error']}."
        return ApiError(400, told, code="invalid_json").response()
    path = [str(part) for part in first["loc"] if part != "body"]
    field = path[0] if path else None
    return ApiError(400, f"{'.'.join(path) or 'the body'}: {first['msg']}.", param=field).response()


async def _plain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}.").response()
