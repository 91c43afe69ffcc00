"""Texts in, texts out: in batches of like lengths, in the order given."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from torch import nn

from regard.core.arguments import whole
from regard.core.errors import InputError
from regard.decoding._beam import beam_search
from regard.decoding._greedy import greedy
from regard.decoding._reader import AFTER_PROMPT, check_network
from regard.decoding._rules import Model, Rules
from regard.models import Loaded, Network, Transformer
from regard.text import Tokenizer

BATCH_TOKENS = 4096
"""Tokens that are read side by side by default, all beams counted."""


def decode_texts(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    beam: int = 1,
    max_length: int | None = None,
    rules: Rules | None = None,
    batch_tokens: int = BATCH_TOKENS,
    advance: Callable[[int], None] | None = None,
) -> list[str]:
    """What a network writes after texts: translations by an encoder-decoder, continuations by a decoder.

    Dropout is off meanwhile, also of a network that is being trained. Texts of like lengths run together,
    each as if alone, and a finished one makes way.

    Args:
        model: the network, or a checkpoint with its files.
        tokenizer: its tokenizer.
        texts: sources, or prompts; of a blank one, "" comes out.
        beam: 1 for `greedy`; more for `beam_search` with as many beams, ranked by the mean log-probability
            of a token.
        max_length: new tokens at most; by default as in `Rules`, of which it is one.
        rules: by default what the model says; where they name no start or end, the tokenizer's are taken.
        batch_tokens: how many tokens run together at most: texts times beams times the length of the
            longest, to which what a decoder may write after a prompt is added.
        advance: called after each batch with the number of texts that are done.

    Returns:
        One text each, in the order given, without special tokens.

    Raises:
        InputError: a network that cannot write, a text that is too long; the message says which.

    Example:
        >>> from tokenizers import Tokenizer as Backend, models, pre_tokenizers
        >>> from regard.models.bart import build, original_transformer
        >>> backend = Backend(models.WordLevel({"<pad>": 0, "</s>": 1, "ein": 2, "Haus": 3}, "<pad>"))
        >>> backend.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> tokenizer = Tokenizer.from_str(backend.to_str())
        >>> config = original_transformer(4, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> written = decode_texts(build(config), tokenizer, ["Haus", " ", "ein Haus"], max_length=5)
        >>> len(written), written[1]
        (3, '')
    """
    whole("beam", beam, least=1)
    whole("batch_tokens", batch_tokens, least=1)
    network = model.network if isinstance(model, Loaded) else model
    cached = isinstance(network, Transformer)
    check_network(network, cached=cached)
    rules = _filled_up(Rules.of(model) if rules is None else rules, network, tokenizer)
    if max_length is not None:
        rules = replace(rules, max_length=max_length)
    named = [place for place, text in enumerate(texts) if text.strip()]
    ids = dict(zip(named, _encoded(network, tokenizer, [texts[place] for place in named]), strict=True))
    longest = network.limit(next(iter(network.prefixes)))
    for place, row in ids.items():
        if longest is not None and len(row) > longest:
            raise InputError(
                f"texts[{place}] must have at most {longest} tokens, the model's limit; got {len(row)}."
            )
    written = [""] * len(texts)
    # What follows a prompt is kept beside it; a translation is about as long as its source.
    more = 0 if len(network.prefixes) == 2 else rules.max_length or AFTER_PROMPT
    with _at_rest(network):
        for batch in _batches({place: len(row) + more for place, row in ids.items()}, batch_tokens // beam):
            rows = [ids[place] for place in batch]
            if beam == 1:
                found = greedy(network, rows, rules=rules, cached=cached)
            else:
                ways = beam_search(network, rows, beams=beam, rules=rules, cached=cached)
                found = [each[0] for each in ways]
            for place, way in zip(batch, found, strict=True):
                written[place] = tokenizer.target.decode(way.token_ids, skip_special=True)
            if advance is not None:
                advance(len(batch))
    return written


def _filled_up(rules: Rules, network: Network, tokenizer: Tokenizer) -> Rules:
    """The rules with what the tokenizer knows."""
    target = tokenizer.target
    if not rules.end_ids and target.special_ids.eos is not None:
        rules = replace(rules, end_ids=(target.special_ids.eos,))
    if len(network.prefixes) == 2 and not rules.start_ids:  # mBART: the mark of the language, the last token
        rules = replace(rules, start_ids=target.bulk.frame().after[-1:])
    stack = network.stack("decoder")
    rows = network.config.vocab_size if stack is None else stack.embeddings.tokens.num_embeddings
    # A table is often longer than the vocabulary; what lies beyond is no text.
    unknown = tuple(id for id in range(rows) if target.piece_of(id) is None and id not in rules.end_ids)
    return replace(rules, forbidden_ids=rules.forbidden_ids + unknown)


def _encoded(network: Network, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Sources in their frame; prompts without what would end them."""
    frame, pieces = tokenizer.bulk.frame(), tokenizer.bulk.pieces(texts)
    after = frame.after if len(network.prefixes) == 2 else ()
    return [[*frame.before, *row, *after] for row in pieces]


# Logits have a row a text, however short it is: so many tokens a text counts for at least.
_SHORTEST = 16


def _batches(lengths: dict[int, int], tokens: int) -> Iterator[list[int]]:
    """Texts of like lengths, the longest first: memory that does not suffice shows at once."""
    order = sorted(lengths, key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        count = max(1, tokens // max(_SHORTEST, lengths[order[start]]))
        yield order[start : start + count]
        start += count


@contextmanager
def _at_rest(network: nn.Module) -> Iterator[None]:
    """Within it dropout is off; afterwards every module is as it was."""
    before = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
