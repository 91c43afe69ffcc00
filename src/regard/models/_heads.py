"""What stands on top of the stacks: from the last hidden state to logits."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.blocks import activation_named
from regard.core import Mask
from regard.core.errors import InputError


class Head(nn.Module, ABC):
    """From the last hidden state to logits."""

    @abstractmethod
    def forward(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """Work out the logits.

        Args:
            state: (batch, N, d_model), the last hidden state.
            pooled: (batch, d_model), the pooler's output, or None.
            token_ids: int64 (batch, N), what the network was called with: the encoder's, where there are two
                stacks.
            mask: who could be attended to.
        """

    def target_of(self, token_ids: Tensor) -> Tensor | None:
        """What the decoder beside an encoder reads where the caller does not say; None if he must."""
        del token_ids
        return None


class LanguageModelHead(Head):
    """logits = softcap(W (scale * h) + b): the next token.

    Args:
        output: (d_model -> vocab_size); its weight may be the table of learned embeddings itself.
        scale: of the hidden state: T5 with tied weights has 1 / sqrt(d_model).
        softcap: bound c of the logits, c tanh(logit / c) (Gemma 2).
        bias: (1, vocab_size), added last, a constant of the checkpoint (BART's, Marian's); None for none.

    Example:
        >>> import torch
        >>> head = LanguageModelHead(nn.Linear(6, 13, bias=False))
        >>> head(torch.randn(1, 5, 6), pooled=None, token_ids=torch.zeros(1, 5), mask=None).shape
        torch.Size([1, 5, 13])
    """

    def __init__(
        self,
        output: nn.Linear,
        *,
        scale: float = 1.0,
        softcap: float | None = None,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.output = output
        self.scale, self.softcap = scale, softcap
        self.bias: Tensor | None
        self.register_buffer("bias", bias)

    def forward(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """(batch, N, d_model) -> (batch, N, vocab_size)."""
        del pooled, token_ids, mask
        if self.scale != 1.0:
            state = state * self.scale
        logits: Tensor = self.output(state)
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits if self.bias is None else logits + self.bias


class MaskedLMHead(Head):
    """logits = W norm(activation(W_d h + b_d)) + b: the token behind a [MASK].

    Args:
        dense: the first linear layer, to the size of the embeddings.
        activation: a name in `regard.blocks.ACTIVATIONS`.
        norm: a norm of the size of the embeddings.
        output: (size of the embeddings -> vocab_size); its weight may be the table itself.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 3.1; the dense layer and the norm are in their code.
    """

    def __init__(self, dense: nn.Linear, activation: str, norm: nn.Module, output: nn.Linear) -> None:
        super().__init__()
        self.dense, self.norm, self.output = dense, norm, output
        self.activation = activation_named(activation)

    def forward(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """(batch, N, d_model) -> (batch, N, vocab_size)."""
        del pooled, token_ids, mask
        logits: Tensor = self.output(self.norm(self.activation(self.dense(state))))
        return logits


class SequenceClassifier(Head):
    """logits = W activation(W_h x_0 + b_h) + b: a label for the text, read off its first position.

    Args:
        labels: (d_model -> num_labels).
        hidden: a linear layer before it; None for none.
        activation: after `hidden`.
        reads_pooler: whether it reads the pooler's output in place of the first position.
        dropout_p: before `labels`, in training.

    Source: Devlin et al. 2019, arXiv 1810.04805, section 4.1.
    """

    def __init__(
        self,
        labels: nn.Linear,
        *,
        hidden: nn.Linear | None = None,
        activation: str = "tanh",
        reads_pooler: bool = False,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        self.hidden, self.labels = hidden, labels
        self.activation = activation_named(activation)
        self.reads_pooler = reads_pooler
        self.dropout = nn.Dropout(dropout_p)

    def forward(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """(batch, N, d_model) -> (batch, num_labels)."""
        del token_ids, mask
        if self.reads_pooler:
            assert pooled is not None, "a head that reads the pooler is built with one"
        x: Tensor = pooled if self.reads_pooler and pooled is not None else state[:, 0]
        if self.hidden is not None:
            x = self.activation(self.hidden(x))
        logits: Tensor = self.labels(self.dropout(x))
        return logits


class ScoreHead(Head):
    """logits = W h + b, of every token or of the last: how decoders classify.

    Args:
        score: (d_model -> num_labels).
        of_last_token: whether one token speaks for the text: the last that is not `pad_id`, or with None the
            last position.
        pad_id: what fills up a text.
        dropout_p: before `score`, in training.

    Source: the classifiers of `transformers`' decoders; no paper has them.
    """

    def __init__(
        self, score: nn.Linear, *, of_last_token: bool, pad_id: int | None = None, dropout_p: float = 0.0
    ) -> None:
        super().__init__()
        self.score, self.of_last_token, self.pad_id = score, of_last_token, pad_id
        self.dropout = nn.Dropout(dropout_p)

    def forward(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """(batch, N, d_model) -> (batch, N, num_labels), or (batch, num_labels) of the last token."""
        del pooled, mask
        if self.of_last_token:
            last = _last(token_ids, self.pad_id)
            state = state[torch.arange(len(state), device=state.device), last]
        logits: Tensor = self.score(self.dropout(state))
        return logits


class EndClassifier(Head):
    """logits = W tanh(W_h x_end + b_h) + b: a label for the text, read off its last end-of-text token.

    The decoder reads the text that the encoder reads, one position later.

    Args:
        hidden: (d_model -> d_model).
        score: (d_model -> num_labels).
        end_id: the token at the end of every text.
        start_id: what the decoder reads first; None for the text's last token (mBART: its language).
        pad_id: what fills up a text; None for nothing.
        dropout_p: before each of the two layers, in training.

    Source: Lewis et al. 2020 (BART), arXiv 1910.13461, section 3.1.
    """

    def __init__(
        self,
        hidden: nn.Linear,
        score: nn.Linear,
        *,
        end_id: int,
        start_id: int | None,
        pad_id: int | None,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        self.hidden, self.score = hidden, score
        self.end_id, self.start_id, self.pad_id = end_id, start_id, pad_id
        self.dropout = nn.Dropout(dropout_p)

    def target_of(self, token_ids: Tensor) -> Tensor:
        """The token ids, one position later."""
        if self.start_id is None:
            start = token_ids.gather(1, _last(token_ids, self.pad_id)[:, None])
        else:
            start = torch.full_like(token_ids[:, :1], self.start_id)
        return torch.cat((start, token_ids[:, :-1]), dim=1)

    def forward(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """(batch, N, d_model) -> (batch, num_labels).

        Raises:
            InputError: a text without an end, or the decoder read another number of tokens.
        """
        del pooled, mask
        if state.shape[:2] != token_ids.shape:
            raise InputError(
                "decoder_token_ids must have the shape of token_ids, whose end the classifier reads: "
                f"{tuple(token_ids.shape)}; got {tuple(state.shape[:2])}."
            )
        is_end = token_ids == self.end_id
        if not bool(is_end.any(dim=1).all()):
            raise InputError(
                f"token_ids must hold the end of text, id {self.end_id}, in every row: the classifier reads "
                "its label there."
            )
        numbers = torch.arange(token_ids.shape[1], device=token_ids.device)
        x = state[torch.arange(len(state), device=state.device), (numbers * is_end).argmax(dim=1)]
        x = torch.tanh(self.hidden(self.dropout(x)))
        logits: Tensor = self.score(self.dropout(x))
        return logits


def _last(token_ids: Tensor, pad_id: int | None) -> Tensor:
    """int64 (batch,), where the last token that is not padding stands."""
    if pad_id is None:
        return torch.full_like(token_ids[:, 0], token_ids.shape[1] - 1)
    numbers = torch.arange(token_ids.shape[1], device=token_ids.device)
    return (numbers * (token_ids != pad_id)).argmax(dim=1)


class TokenClassifier(Head):
    """logits = W h + b: a label for every token.

    Args:
        labels: (d_model -> num_labels).
        dropout_p: before it, in training.
    """

    def __init__(self, labels: nn.Linear, *, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.labels = labels
        self.dropout = nn.Dropout(dropout_p)

    def forward(
        self, state: Tensor, *, pooled: Tensor | None, token_ids: Tensor, mask: Mask | None
    ) -> Tensor:
        """(batch, N, d_model) -> (batch, N, num_labels)."""
        del pooled, token_ids, mask
        logits: Tensor = self.labels(self.dropout(state))
        return logits


def output_layer(tokens: nn.Embedding, *, is_tied: bool, use_bias: bool = False) -> nn.Linear:
    """A linear layer to the vocabulary; tied, its weight is the table of learned embeddings itself.

    Source: Press and Wolf 2017, arXiv 1608.05859.
    """
    output = nn.Linear(
        tokens.embedding_dim, tokens.num_embeddings, bias=use_bias, device=tokens.weight.device
    )
    if is_tied:
        output.weight = tokens.weight
    return output
