"""`POST /v1/chat/completions`, as OpenAI defines it, of decoders with a chat template."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from regard.api import Model
from regard.core.errors import CheckpointError
from regard.decoding import Added
from regard.serving._completions import CompletionsBody, Form, WritingBody, answer
from regard.serving._limits import ApiError, Body, answers
from regard.text import Chat

router = APIRouter()

# Half a million characters; the limit of tokens comes later.
Text = Annotated[str, Field(max_length=2**19)]
Most = Annotated[int | None, Field(ge=1, le=2**16, description="Tokens of an answer; by default 256.")]


class TextPart(Body):
    """A part of a message."""

    type: Literal["text"]
    text: Text


# Pictures and sounds are refused by their kind, before pydantic lists all that is wrong.
def _of_text(content: Any) -> Any:
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and (kind := part.get("type")) != "text":
            raise PydanticCustomError(
                "text", "must be text; this server does not read {kind}", {"kind": kind}
            )
    return content


class Message(Body):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[Text | Annotated[list[TextPart], Field(min_length=1)], BeforeValidator(_of_text)]
    name: Annotated[str | None, Field(description="Not used.")] = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        """Clients send back what they got, with fields such as `refusal` that are null."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}

    def plain(self) -> dict[str, str]:
        """As templates have it: a developer is the system, parts are joined by line ends."""
        parts = [self.content] if isinstance(self.content, str) else [each.text for each in self.content]
        return {"role": self.role.replace("developer", "system"), "content": "\n".join(parts)}


class ChatBody(WritingBody):
    """Messages to answer."""

    messages: Annotated[
        list[Message], Field(min_length=1, max_length=2048, examples=[[{"role": "user", "content": "Why?"}]])
    ]
    max_completion_tokens: Most = None
    max_tokens: Most = None
    logprobs: bool = False
    top_logprobs: Annotated[int | None, Field(ge=0, le=20, description="Likely tokens of a step.")] = None
    tools: Annotated[list[Any], Field(max_length=0, description="Not there.")] = []
    response_format: Annotated[dict[Literal["type"], Literal["text"]] | None, Field()] = None

    def completion(self) -> CompletionsBody:
        """The same as of completions; its prompt says how long the messages are."""
        common = {name: getattr(self, name) for name in WritingBody.model_fields}
        # OpenAI's newer name goes before the older one.
        most = self.max_completion_tokens or self.max_tokens
        # Built without validation: all fields were checked above.
        return CompletionsBody.model_construct(
            # Whether max_tokens was given matters: then too much is refused, not lowered.
            {"max_tokens"} if most else set(),
            prompt="\n".join(each.plain()["content"] for each in self.messages),
            max_tokens=most or 256,
            logprobs=self.top_logprobs or 0 if self.logprobs else None,
            **common,
        )


_ANSWERED = {
    "id": "chatcmpl-4f1c",
    "object": "chat.completion",
    "created": 1790000000,
    "model": "SmolLM2-135M-Instruct",
    "regard": {"page": "/answers/chatcmpl-4f1c"},
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 31, "completion_tokens": 2, "total_tokens": 33},
}


@router.post("/v1/chat/completions", responses=answers(_ANSWERED), tags=["OpenAI"])
async def chat(body: ChatBody, request: Request) -> Response:
    """Answer messages, with a chat model; as a stream of server-sent events where that is asked for."""
    messages = [each.plain() for each in body.messages]
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs must be left out without logprobs.", param="top_logprobs")

    def prompts(model: Model) -> list[Chat]:
        # A broken template is the server's fault, not the client's.
        try:
            return [model.tokenizer.chat(messages)]
        except CheckpointError as error:
            raise ApiError(500, str(error)) from error

    return await answer(request, body.completion(), _FORM, prompts, messages)


def _choice(news: list[Added], whole: bool, first: bool) -> dict[str, Any]:
    # The first event of a choice names the role.
    role = {"role": "assistant"} if first else {}
    tokens = [
        _token(each.token) | {"top_logprobs": list(map(_token, each.likeliest))}
        for each in news
        if each.token is not None
    ]
    said = role | {"content": "".join(each.text for each in news)}
    return {"message" if whole else "delta": said, "logprobs": {"content": tokens}}


def _token(token: Any) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.log_probability, "bytes": None}


_KINDS = ("chat.completion", "chat.completion.chunk")
_FORM = Form("chatcmpl", _KINDS, ("texts[0]", "messages"), _choice, has_page=True)
