"""The tokens of a text that a head may look at, as questions to `row_statistics`, and its answers by name.

What the text does not have is not asked for, and where a single query does not have it, its answer is NaN.
"""

import unicodedata
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.core import AttentionInputs, Groups, RowStatistics, row_statistics
from regard.text import Encoding, Token, Word


class TokenSets:
    """Sets of tokens of two sequences; if `cross`, they differ, and no query is at a key's position."""

    def __init__(self, of_queries: Encoding, of_keys: Encoding, *, cross: bool) -> None:
        self._cross = cross
        self._queries, self._keys = len(of_queries.tokens), len(of_keys.tokens)
        # Sums over keys that are the same for all queries: name, and whether a key is among them.
        self._columns: dict[str, Tensor] = {}
        self._groups: dict[str, Groups] = {}
        self._alone: dict[str, Tensor] = {}
        special = [token.special for token in of_keys.tokens]
        if any(special):
            self._columns["to_special"] = torch.tensor(special)
        marks = [is_punctuation(token, of_keys.words) for token in of_keys.tokens]
        if any(marks):
            self._columns["to_punctuation"] = torch.tensor(marks)
        self._sentence: Tensor | None = None
        if not cross:
            self._add_sentences(of_keys)
            self._add_words(of_keys)

    def _add_sentences(self, encoding: Encoding) -> None:
        sentence = torch.tensor([-1 if each.sequence is None else each.sequence for each in encoding.tokens])
        if {0, 1} <= set(sentence.tolist()):
            self._sentence = sentence
            self._columns |= {f"sentence {number}": sentence == number for number in (0, 1)}

    def _add_words(self, encoding: Encoding) -> None:
        word = torch.tensor([-1 if token.word is None else token.word for token in encoding.tokens])
        self._add_group("to_same_word", Groups(word))
        spelled = [each.text.casefold() if _is_spelled(each.text) else None for each in encoding.words]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(spelled))}
        text = [-1 if spelled[at] is None else numbers[spelled[at]] for at in word.tolist() if at >= 0]
        same = torch.full_like(word, -1)
        same[word >= 0] = torch.tensor(text, dtype=torch.int64)
        self._add_group("to_repeated_word", Groups(same, word))

    def _add_group(self, name: str, groups: Groups) -> None:
        others = groups.others()
        if bool(others.any()):
            self._groups[name], self._alone[name] = groups, others == 0

    def ask(self, inputs: AttentionInputs, top_k: int) -> dict[str, Tensor]:
        """One layer's statistics by name: on the CPU, (heads, queries), float32 or int64."""
        device = inputs.q.device
        at = torch.arange(self._queries, device=device)
        places = torch.zeros(self._queries, 1, dtype=torch.int64, device=device)  # the first token
        if not self._cross:
            places = torch.cat((places, torch.stack((at, at - 1, at + 1), dim=1)), dim=1)
            places[places == self._keys] = -1
        values = torch.stack(list(self._columns.values()), dim=1) if self._columns else None
        found = row_statistics(
            inputs,
            values=None if values is None else values.float().to(device),
            places=places,
            positions=None if self._cross else at,
            groups=list(self._groups.values()),
            top_k=top_k,
        )
        return {name: _delivered(tensor) for name, tensor in self._by_name(found).items()}

    def _by_name(self, found: RowStatistics) -> dict[str, Tensor]:
        named = {
            "entropy": found.entropy,
            "largest": found.largest,
            "largest_at": found.largest_at,
            "distance": found.distance,
            "spread": found.spread,
            "to_sink": found.sink,
            "received": found.received,
            "top_weights": found.top_weights,
            "top_keys": found.top_keys,
        }
        answers = {name: tensor for name, tensor in named.items() if tensor is not None}
        assert found.at_places is not None, "there is always a first token"
        places = ("to_first",) if self._cross else ("to_first", "to_self", "to_previous", "to_next")
        answers |= dict(zip(places, found.at_places.unbind(dim=3), strict=True))
        if not self._cross:
            answers["to_previous"][..., 0] = torch.nan
            answers["to_next"][..., -1] = torch.nan
        if found.mass is not None:
            answers |= dict(zip(self._columns, found.mass.unbind(dim=3), strict=True))
        if self._sentence is not None:
            first, second = (answers.pop(f"sentence {number}") for number in (0, 1))
            sentence = self._sentence.to(first.device)
            other = torch.where(sentence == 0, second, first)
            answers["to_other_sentence"] = other.masked_fill(sentence < 0, torch.nan)
        if found.at_groups is not None:
            for name, values in zip(self._groups, found.at_groups.unbind(dim=3), strict=True):
                answers[name] = values.masked_fill(self._alone[name].to(values.device), torch.nan)
        return answers


def _delivered(tensor: Tensor) -> Tensor:
    """The only item of the batch, on the CPU."""
    one = tensor[0].cpu()
    return one.float() if one.is_floating_point() else one


def is_punctuation(token: Token, words: Sequence[Word]) -> bool:
    """Whether a token shows nothing but punctuation; the apostrophe of "isn't" is part of a word, so it is
    not.

    Of a token that came as an id, without a text (no words), its piece tells.
    """
    if token.special or (words and token.word is not None and _is_spelled(words[token.word].text)):
        return False
    shown = token.surface.strip(" Ġ▁")  # what pieces have in the place of a blank
    return bool(shown) and all(unicodedata.category(each).startswith("P") for each in shown)


def _is_spelled(word: str) -> bool:
    return any(each.isalnum() for each in word)
