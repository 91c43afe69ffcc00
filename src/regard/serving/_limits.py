"""What a server is told when it starts, and what requests, answers and errors have in common."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, Strict, model_validator

from regard.core.arguments import Count, check_fields
from regard.core.errors import InputError
from regard.embedding import Precision

# OpenAI's words for the kinds of errors.
_TYPES: Final = {401: "authentication_error", 429: "rate_limit_error"}

ModelName = Annotated[
    str | None,
    Field(description="A name of /v1/models; by default the first.", examples=["all-MiniLM-L6-v2"]),
]

FILLED: Final = {"minLength": 1, "pattern": r"\S"}
"""A text that is not blank, in a description: what is blank is refused by a plainer message."""

Filled = Annotated[str, Field(json_schema_extra=dict(FILLED))]

Format = Annotated[
    Literal["float", "base64"], Field(description="base64: of float32, little-endian, in order.")
]
PAGE_HEADERS: Final = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

# A page is HTML, its errors are not: FastAPI would describe both as what the route returns.
PAGE_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": "An error, as under /v1", "content": {"application/json": {}}}
    for status in (400, 404, 429, 503)
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits, keys and choices of a server.

    Args:
        keys: the API keys, of which a request under /v1 and to /tokenize must carry one; or none.
        hosts: the names by which the server is called, beside `localhost` and any address in numbers; None
            for any. A page from elsewhere can give an address a name of its own, and would be let in by it.
        origins: those whose pages may call the server from a browser, such as "https://example.org".
        index: the folder of a concordance, for /v1/usages/search.
        precision: what embeddings are computed in; see `regard.embedding.Request`.
        dimensions: the sizes that vectors may be cut to, beside those that a model's card says it was trained
            for.
        max_body: bytes of a request.
        max_texts: texts of a request.
        max_tokens: tokens of a request.
        max_queue: tokens that may wait, of each model.
        max_memory: bytes of weights that may be in memory; None for no bound.
        timeout: seconds in which a request is answered, the last event of a stream included.
        body_timeout: seconds in which a request's body has arrived, and a client takes 64 KB of its answer.
        stall: seconds after which a computation counts as hung, and the server as dead.
        access_log: whether each request is logged.

    Raises:
        InputError: a limit that leaves nothing.
    """

    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] | None = None
    origins: tuple[str, ...] = ()
    index: Path | None = None
    precision: Precision = "float32"
    dimensions: tuple[Count, ...] = ()
    max_body: Count = 8 * 2**20
    max_texts: Count = 2048
    max_tokens: Count = 2**17
    max_queue: Count = 2**18
    max_memory: Count | None = None
    timeout: float = 60.0
    body_timeout: float = 20.0
    stall: float = 300.0
    access_log: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("timeout", "body_timeout", "stall"):  # which may be infinite
            # `not >`: NaN is refused, too.
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be more than 0 seconds; got {getattr(self, name)}.")


class ApiError(Exception):
    """What a request is refused with; `code` is a word for programs, `retry_after` counts seconds."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.retry_after = status, message, code, retry_after
        kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}

    def response(self) -> Response:
        """The answer."""
        headers = {} if self.retry_after is None else {"Retry-After": str(max(1, round(self.retry_after)))}
        if self.status == 401:
            # HTTP wants a 401 to say which scheme it expects.
            headers["WWW-Authenticate"] = "Bearer"
        return Response(orjson.dumps(self.body), self.status, headers, media_type="application/json")


class Body(BaseModel):
    """The body of a request, with the types of JSON Schema: "2" is no number, 2.0 is a whole one.

    Fields that nobody knows are refused: a wrong name must not pass unseen. An optional field may be null,
    which clients send for what is left out.
    """

    # strict: a number in quotes is a mistake of the client's.
    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        known = cls.model_fields
        # null for a known field means that it is left out; unknown fields stay, to be refused.
        return {
            name: _whole(value) for name, value in given.items() if value is not None or name not in known
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """As pydantic tells it, with null where a field may be left out."""
        schema = handler.resolve_ref_schema(handler(core))
        # Optional fields may be null, which pydantic would not tell.
        for name, field in schema["properties"].items():
            if name not in schema.get("required", ()) and {"type": "null"} not in field.get("anyOf", ()):
                kept = {key: field.pop(key) for key in ("description", "examples") if key in field}
                schema["properties"][name] = kept | {"anyOf": [field, {"type": "null"}]}
        return schema


def _whole(value: Any) -> Any:
    # JSON does not tell 2.0 from 2, and strict pydantic does.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    # Texts are passed over: there may be thousands, none of which is a number.
    if isinstance(value, list) and value and not isinstance(value[0], str):
        return list(map(_whole, value))
    return value


Pair = Annotated[tuple[int, int], Strict(False)]
"""A layer and a head: a list in JSON."""


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


def answers(example: dict[str, Any] | None = None) -> dict[int | str, dict[str, Any]]:
    """A right answer of a route under /v1, and those that are errors, for its description."""
    told: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorBody} for status in (400, 401, 404, 408, 413, 415, 429, 503, 504)
    }
    return told if example is None else told | {200: {"content": {"application/json": {"example": example}}}}
