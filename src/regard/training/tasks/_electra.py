"""Replaced-token detection."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import InputError
from regard.models import Transformer, load_checkpoint, new_network
from regard.models.families.electra import ElectraConfig, share_embeddings
from regard.text import Tokenizer
from regard.training._batch import Batch, Generators, Row
from regard.training._losses import NOT_A_TARGET, binary_entropy, cross_entropy, predicted
from regard.training._networks import network_of, stored_network
from regard.training.tasks._mlm import Masked, masking_of
from regard.training.tasks._task import TaskInputs, precision_recall_f1, run

GENERATOR = "generator"


class ReplacedTokens(Masked):
    """Tell the tokens that another network put in place of the true ones.

        loss = - sum over masked places of log p_G(x_i | the text as seen)
               + weight x sum over all places of H([y_i != x_i], D(y)_i)

    A small generator G guesses masked tokens and is trained as for masked language modelling. In each masked
    place y has a token drawn from what G says there, elsewhere x itself. The discriminator D says of each
    token of y whether it was replaced: one that was drawn right was not. No gradient goes through the
    drawing, and both networks share their tables of embeddings. D is the model; G lies beside it.

    Args:
        network: the discriminator, an ELECTRA with a head for replaced tokens.
        tokenizer: its tokenizer, which must have a mask token.
        generator: G.
        size: of a new generator, as a share of the discriminator's heads, with d_model and d_ff to match.
        masked: the share of tokens that is masked.
        whole_words: whether all pieces of a word are masked together.
        weight: of the discriminator's loss.

    Source: Clark et al. 2020, arXiv 2003.10555, sections 2 and 3.2.
    """

    family = "electra"
    head = "replaced"

    def __init__(
        self,
        network: Transformer,
        tokenizer: Tokenizer,
        generator: Transformer,
        *,
        size: float = 0.25,
        masked: float = 0.15,
        whole_words: bool = False,
        weight: float = 50.0,
    ) -> None:
        super().__init__(network, tokenizer)
        del size  # `from_inputs` has read it
        self.weight = weight
        # Every drawn token is masked: the discriminator never sees a mask token, only what G puts there.
        self.masking = masking_of(tokenizer, masked, whole_words, fates=(1.0, 0.0))
        self.generator = generator
        share_embeddings(self.generator, network)

    @classmethod
    def from_inputs(cls, inputs: TaskInputs, options: Mapping[str, Any]) -> Self:
        network = network_of(inputs.spec, inputs.tokenizer, head=cls.head)
        if not isinstance(network.config, ElectraConfig):
            raise InputError("family must be electra for electra, also of a checkpoint.")
        # Another seed than the discriminator's, whose tables it shares but whose layers it does not.
        # A share of the discriminator's size.
        generator = new_network(
            generator_of(network.config, options.get("size", 0.25)), seed=inputs.spec.seed + 1
        )
        if inputs.spec.start is not None:
            beside = Path(load_checkpoint(inputs.spec.start).source.folder, GENERATOR)
            if beside.is_dir():
                generator = stored_network(beside)
        return cls(network, inputs.tokenizer, generator, **options)

    @property
    def weights(self) -> Mapping[str, float]:
        return {"generator": 1.0, "discriminator": self.weight}

    @property
    def beside(self) -> Mapping[str, Transformer]:
        return {GENERATOR: self.generator}

    def batch(self, rows: Sequence[Row], draws: Generators) -> Batch:
        masked = super().batch(rows, draws)
        # Drawn here, where draws are functions of the place in the run; used in `forward`.
        # (rows, longest): a number from 0 to 1 for each token.
        chance = torch.zeros(masked.labels.shape, dtype=torch.float64)
        for place, row in enumerate(zip(rows, draws, strict=True)):
            own = [draw.random(len(each["tokens"])) for each, draw in zip(*row, strict=True)]
            chance[place, : sum(map(len, own))] = torch.from_numpy(np.concatenate(own))
        tokens = int(masked.source.is_token.sum())
        # The generator is scored on masked tokens, the discriminator on all.
        counts = {"generator": masked.counts["loss"], "discriminator": tokens}
        return replace(masked, counts=counts, more={"chance": chance})

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        # The generator guesses the masked tokens.
        state = self.state(batch, self.generator).last_hidden_state
        targets, guesses = predicted(self.generator, state, batch.labels)
        masked = batch.labels != NOT_A_TARGET
        # The text before it was masked.
        true = torch.where(masked, batch.labels, batch.source.ids)
        ids = true
        # Without gradient, as in the paper: a drawn token is no function that can be differentiated.
        if bool(masked.any()):
            ids = true.masked_scatter(masked, drawn(guesses, batch.more["chance"][masked]))
        known = batch.source.is_token & (batch.examples > 0)  # none for a process without a batch
        # A token that was guessed right counts as original, as in the paper.
        replaced = (ids != true)[known]
        logits = run(self.network, replace(batch, source=replace(batch.source, ids=ids))).logits
        assert logits is not None
        sums = {
            # Clark et al. 2020, section 2: the sum of both losses, the second weighted.
            "generator": cross_entropy(guesses, targets),
            "discriminator": binary_entropy(logits[known], replaced),
        }
        if not self.training:
            said = logits[known] > 0
            sums["guessed"] = (guesses.argmax(dim=-1) == targets).sum()
            sums["right"] = (said == replaced).sum()
            # Replaced, said to be, and both.
            sums["found"] = torch.stack([replaced.sum(), said.sum(), (said & replaced).sum()])
        return sums

    def scores(self, sums: Mapping[str, Any]) -> dict[str, float]:
        """The losses, the accuracy of both, and how well replaced tokens are found."""
        targets = {name: max(1.0, sums[f"targets.{name}"]) for name in self.weights}
        losses = {name: sums[name] / targets[name] for name in self.weights}
        return {
            "loss": sum(weight * losses[name] for name, weight in self.weights.items()),
            **losses,
            "generator_accuracy": sums["guessed"] / targets["generator"],
            "accuracy": sums["right"] / targets["discriminator"],
            **precision_recall_f1(sums["found"]),
        }


def generator_of(config: ElectraConfig, size: float) -> ElectraConfig:
    """The config of a generator: as deep as the discriminator, with a share of its heads."""
    if not 0.0 < size <= 1.0:
        raise InputError(f"task.size must be above 0 and at most 1; got {size}.")
    heads = max(1, round(size * config.num_heads))
    return replace(
        config,
        head="masked-lm",
        num_heads=heads,
        d_model=config.d_model // config.num_heads * heads,
        d_ff=max(1, config.d_ff * heads // config.num_heads),
    )


@torch.no_grad()
def drawn(logits: Tensor, chance: Tensor) -> Tensor:
    """A class for each row, with the probabilities softmax(logits): the first where their sum exceeds chance.

    Example:
        >>> import torch
        >>> drawn(torch.tensor([[0.0, 0.0]] * 3), torch.tensor([0.1, 0.4, 0.6])).tolist()
        [0, 0, 1]
    """
    # The distribution function; the last sum is 1 but for rounding.
    sums = logits.double().softmax(dim=-1).cumsum(dim=-1)
    places = torch.searchsorted(sums, chance.double()[:, None] * sums[:, -1:], right=True)[:, 0]
    return places.clamp(max=logits.shape[-1] - 1)
