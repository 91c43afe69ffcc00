"""What stands behind a mask: the guesses of a masked language model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from regard.core.arguments import whole
from regard.core.displayable import Displayable, plain_table
from regard.core.errors import InputError, RegardError
from regard.core.wording import excerpt
from regard.decoding._steps import Pieces
from regard.models import Loaded
from regard.text import Tokenizer

if TYPE_CHECKING:
    from rich.console import RenderableType

# Columns of a bar of probability 1.
_BAR = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """One token that could stand behind a mask.

    Args:
        token: as text: "bank"; "##ing" where it goes on with a word; a blank is "␣".
        token_id: its row of the vocabulary.
        probability: p(token | the text with its masks), over the whole vocabulary.
    """

    token: str
    token_id: int
    probability: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Filled(Displayable):
    """A text with masks, and what could stand behind each: `print` shows a table.

    Attributes:
        text: as it was given.
        masks: for each mask its guesses, the likeliest first. Each is ranked by itself, while the others are
            still masks: two guesses side by side need not go together.
        best: the text with the likeliest guess for every mask.
    """

    text: str
    masks: tuple[tuple[Guess, ...], ...]
    best: str

    def __repr__(self) -> str:
        return f"Filled({self.best!r})"

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each guess; masks count from 0."""
        return [
            {"mask": place, "token": each.token, "token_id": each.token_id, "probability": each.probability}
            for place, guesses in enumerate(self.masks)
            for each in guesses
        ]

    def _parts(self) -> "Iterator[RenderableType]":
        from rich.text import Text

        yield Text(excerpt(self.best, 80))
        for place, guesses in enumerate(self.masks):
            yield Text("" if len(self.masks) == 1 else f"\nmask {place + 1} of {len(self.masks)}")
            rows = [
                (excerpt(each.token, 30), f"{each.probability:.4f}", "█" * round(_BAR * each.probability))
                for each in guesses
            ]
            yield plain_table(["token", "p", ""], rows, bar=True)


@torch.no_grad()
def fill(model: Loaded, text: str, *, top: int = 5) -> Filled:
    """Guess the tokens behind each mask of a text.

        p(w) = softmax(logits at the mask)_w

    Args:
        model: a checkpoint with a masked-LM head and a tokenizer.
        text: with the mask as the model spells it: "[MASK]" (BERT), "<mask>" (RoBERTa).
        top: how many guesses for each.

    Raises:
        InputError: a model without such a head, a text without a mask, or one that is too long.
        CheckpointError: there is no tokenizer.

    Example:
        >>> from regard.decoding import fill
        >>> from regard.models import load_checkpoint
        >>> fill(load_checkpoint(), "The man sat on the river [MASK].")
        Traceback (most recent call last):
        regard.core.errors.InputError: model must have a masked-LM head, to fill gaps; this bert has none. ...

    Source: Devlin et al. 2019, arXiv 1810.04805, section 3.1.
    """
    whole("top", top, least=1)
    # The checks from the model to the text: each message names what to give instead.
    network = model.network
    if "decoder" in network.prefixes:
        raise InputError(
            f"model must have a masked-LM head, to fill gaps; this {model.family} writes on, which "
            "`regard generate` and model.generate do."
        )
    if not network.has_vocabulary_head:
        raise InputError(
            f"model must have a masked-LM head, to fill gaps; this {model.family} has none. Give a "
            "checkpoint that has one, such as bert-base-uncased, or one that `regard train mlm` made."
        )
    tokenizer = model.require_tokenizer()
    mask = tokenizer.special_ids.mask
    if mask is None:
        raise InputError("model must have a mask among its tokens; its tokenizer's files name none.")
    spelling = tokenizer.token_of(mask)
    encoding = tokenizer.encode(text)
    ids = encoding.token_ids
    # Positions of the masks among the tokens.
    places = [place for place, id in enumerate(ids) if id == mask]
    if not places:
        raise InputError(f"text must have a mask, which this model spells {spelling}; got {text!r}.")
    limit = network.limit("encoder")
    if limit is not None and len(ids) > limit:
        raise InputError(f"text must have at most {limit} tokens, the model's limit; got {len(ids)}.")
    # (masks, vocab_size)
    logits = network(torch.tensor([ids], device=next(network.parameters()).device)).logits[0, places]
    if not bool(logits.isfinite().all()):
        raise RegardError("model gives logits that are not finite: its weights are damaged.")
    shares = torch.softmax(logits.double(), dim=1)
    # A table is often longer than the vocabulary; what lies beyond is no token.
    # True for ids that have a piece.
    rows = torch.tensor([tokenizer.piece_of(id) is not None for id in range(shares.shape[1])])
    best_of_masks = shares.masked_fill(~rows.to(shares.device), -1.0).topk(min(top, int(rows.sum())), dim=1)
    masks = tuple(
        tuple(
            Guess(token=_read(tokenizer, id), token_id=id, probability=share)
            for id, share in zip(each, by, strict=True)
        )
        for each, by in zip(best_of_masks.indices.tolist(), best_of_masks.values.tolist(), strict=True)
    )
    # The text with the best guess of each mask in place: from gap to gap.
    best, end = "", 0
    for place, guesses in zip(places, masks, strict=True):
        span = encoding.tokens[place].span
        assert span is not None, "it is in the text"
        best_id = guesses[0].token_id
        # Read after what stands before: a word then keeps or loses its blank as it should.
        word = (Pieces(tokenizer, ids[:place]).text([best_id]) or tokenizer.decode([best_id])).strip()
        gap = text[span[0] : span[1]]
        # A mask's span may begin with blanks, which stay.
        best += text[end : span[0]] + gap[: len(gap) - len(gap.lstrip())] + word
        end = span[1]
    return Filled(text=text, masks=masks, best=best + text[end:])


def _read(tokenizer: Tokenizer, id: int) -> str:
    text = tokenizer.decode([id]).strip()
    # A part of a character, or a control: shown as the vocabulary has it.
    return text if text and "\N{REPLACEMENT CHARACTER}" not in text else tokenizer.shown(id)
