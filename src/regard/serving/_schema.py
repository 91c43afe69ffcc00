"""Parts of requests and answers that several routes share."""

from typing import Annotated, Any

import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

ModelName = Annotated[
    str | None,
    Field(description="A name of /v1/models; by default the first.", examples=["all-MiniLM-L6-v2"]),
]


class Body(BaseModel):
    """The body of a request. Fields that nobody knows are refused: a wrong name must not pass unseen."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ErrorDetail(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """OpenAI's body of an error."""

    error: ErrorDetail


def answered(told: dict[str, Any]) -> Response:
    """An answer as JSON, arrays as lists."""
    return Response(orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The answers of a route that are errors, for its description: those that all can give, and some more."""
    return {
        status: {"model": ErrorBody} for status in sorted({400, 401, 404, 408, 413, 415, 429, 503, *statuses})
    }


def example(told: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """A right answer of a route, for its description."""
    return {200: {"content": {"application/json": {"example": told}}}}
