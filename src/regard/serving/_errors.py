"""Errors as OpenAI's clients read them."""

from typing import Final

import orjson
from fastapi import Response

_TYPES: Final = {401: "authentication_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """What a request is refused with: a status, and the body `{"error": {message, type, param, code}}`.

    Args:
        status: of HTTP.
        message: what was wanted, what came, and the way out.
        type: OpenAI's class of the error; by default that of the status.
        param: the field of the request that it is about.
        code: a word for programs, such as "model_not_found".
        retry_after: seconds after which to try again.

    Example:
        >>> ApiError(404, "no such model", param="model", code="model_not_found").response().status_code
        404
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str | None = None,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.type = type or _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.retry_after = retry_after

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """OpenAI's error body, which is also what a stream sends once it has begun."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The answer."""
        headers = {} if self.retry_after is None else {"Retry-After": str(max(1, round(self.retry_after)))}
        if self.status == 408:  # the rest of the body may come later, and would be waited for
            headers["Connection"] = "close"
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return Response(orjson.dumps(self.body), self.status, headers, media_type="application/json")
