"""Texts written token by token, each token chosen once and for all."""

from collections.abc import Sequence

import torch

from regard.core.errors import RegardError
from regard.decoding._choice import Choice, MostLikely
from regard.decoding._decoded import Decoded
from regard.decoding._reader import Reader
from regard.decoding._rules import Model, Rules
from regard.models import Loaded


@torch.no_grad()
def greedy(
    model: Model, texts: Sequence[Sequence[int]], *, rules: Rules | None = None, cached: bool = True
) -> list[Decoded]:
    """Write each text with the most likely token at every step.

        y_t = argmax_w log p(w | y_1 .. y_t-1, text)

    All texts run as one batch; one that is finished leaves it. What a text becomes does not depend on the
    others: prompts are padded on the left, sources on the right, and positions counted from the tokens.

    Args:
        model: the network, in evaluation mode, or a checkpoint with its files.
        texts: token ids, a list a text: the prompts of a decoder, the sources of an encoder-decoder.
        rules: where texts begin and end, and how long they are; by default what the model says.
        cached: whether keys and values are kept; otherwise every token costs a pass over all before it.

    Returns:
        For each text what was written after it.

    Raises:
        InputError: a network that cannot write, a text that is empty or too long, lengths that do not fit.
        RegardError: logits that are no numbers.

    Example:
        >>> from regard.models.gpt2 import Gpt2Config, build
        >>> config = Gpt2Config(vocab_size=13, d_model=6, num_layers=1, num_heads=2, d_ff=11)
        >>> network = build(config).eval()
        >>> rules = Rules(max_length=5)
        >>> [len(written.token_ids) for written in greedy(network, [[3, 1], [4, 1, 5, 9]], rules=rules)]
        [5, 5]
    """
    return choose(model, texts, choice=MostLikely(), rules=rules, cached=cached)


def choose(
    model: Model,
    texts: Sequence[Sequence[int]],
    *,
    choice: Choice,
    rules: Rules | None,
    cached: bool,
) -> list[Decoded]:
    """Write each text with the token that `choice` takes at every step; arguments as of `greedy`."""
    rules = Rules.of(model) if rules is None else rules
    network = model.network if isinstance(model, Loaded) else model
    reader = Reader(network, texts, rules, cached=cached)
    device = next(network.parameters()).device
    written: list[list[int]] = [[] for _ in texts]
    found: dict[int, Decoded] = {}
    rows = torch.arange(len(texts), device=device)  # the texts that go on
    sums = torch.zeros(len(texts), device=device, dtype=torch.float64)
    length = 0
    while True:
        order = rows.tolist()
        limits = [reader.limits[text] for text in order]
        scores = rules.apply(torch.log_softmax(reader.logits(), dim=1), length, limits)
        chosen = choice(scores, rows, length)
        sums += scores.gather(1, chosen[:, None])[:, 0]
        length += 1
        going = []
        for row, (text, token, total) in enumerate(zip(order, chosen.tolist(), sums.tolist(), strict=True)):
            ended = token in rules.end_ids
            if not ended:
                written[text].append(token)
            if ended or length == reader.limits[text]:
                found[text] = finished(written[text], total, total, ended=ended)
            else:
                going.append(row)
        if len(going) < len(order):
            at = torch.tensor(going, dtype=torch.int64, device=device)
            rows, sums, chosen = rows[at], sums[at], chosen[at]
            if not going:
                break
            reader.pick(at)
        reader.add(chosen)
    return [found[text] for text in range(len(texts))]


def finished(ids: Sequence[int], total: float, score: float, *, ended: bool) -> Decoded:
    """One text that is done; refused where its probability is no number, or nothing could be chosen."""
    if not total > -torch.inf:
        raise RegardError(
            "no token could be chosen: the network's logits are no numbers, or rules forbid all of them."
        )
    return Decoded(token_ids=tuple(ids), log_probability=total, score=score, ended=ended)
