"""A chat on a page: which tokens are whose."""

from typing import Any

from regard.text import Chat
from regard.tracing.record import Trace


def messages_of(trace: Trace, chat: Chat | None) -> list[dict[str, Any]]:
    """The messages and the answer of a chat that a decoder read, as `AttentionRecord.messages` has them.

    None where the chat is none, where its template changes what messages say, or where the trace is not of
    the chat's tokens.
    """
    if chat is None or not chat.places or trace.loaded is None or trace.decoder is None:
        return []
    known, read = trace.loaded.require_tokenizer().encode(chat), trace.decoder.encoding
    count = len(known.tokens)
    if read.token_ids[:count] != known.token_ids:
        return []

    def first(place: int) -> int:
        """The first token that ends behind a place of the chat."""
        ends = (at for at, token in enumerate(known.tokens) if token.span and token.span[1] > place)
        return next(ends, count)

    found = [
        {
            "role": role,
            "frame": first(frame),
            "first": first(begin),
            "last": first(end - 1),
            "text": chat[begin:end],
        }
        for role, frame, begin, end in chat.places
    ]
    spans = [token.span for token in read.tokens[count:] if token.span]
    answer = read.texts[0][spans[0][0] : spans[-1][1]] if spans else ""
    return [*found[:-1], found[-1] | {"last": len(read.tokens) - 1, "text": answer}]
