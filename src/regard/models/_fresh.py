"""A network that nothing has been learned in yet."""

from collections.abc import Collection

import torch

from regard.core.errors import InputError
from regard.models._attentions import choice_of
from regard.models._config import FamilyConfig
from regard.models._init import WithoutValues, blank, fill
from regard.models._network import Network
from regard.models._surgery import our_own
from regard.models._transformer import Transformer
from regard.models.families import family_of


def new_network(config: FamilyConfig, *, seed: int = 0) -> Transformer:
    """A network of its family's own initial weights, in float32 on the CPU, in training mode.

    Args:
        config: the family's, such as `regard.models.families.bert.BertConfig`. A pooler that its head does
            not read is left out.
        seed: of the random numbers; the same one gives the same network, wherever it then goes.

    Raises:
        InputError: sizes that no network can have.

    Example:
        >>> from regard.models.families.gpt2 import Gpt2Config
        >>> network = new_network(Gpt2Config(vocab_size=13, d_model=6, num_layers=2, num_heads=2, d_ff=11))
        >>> network.training, network.decoder.layers[0].ffn.hidden.bias.unique().tolist()
        (True, [0.0])
    """
    with WithoutValues():
        network = family_of(config.model_type).build(config.trimmed())
    init_weights(network, generator=torch.Generator().manual_seed(seed))
    return network


def count_parameters(config: FamilyConfig) -> int:
    """How many numbers a network of this config has to learn, tied ones counted once. Nothing is allocated.

    Example:
        >>> from regard.models.families.gpt2 import Gpt2Config
        >>> count_parameters(Gpt2Config(vocab_size=13, d_model=6, num_layers=2, num_heads=2, d_ff=11))
        6916
    """
    with blank():
        network = family_of(config.model_type).build(config.trimmed())
    return sum(parameter.numel() for parameter in network.parameters())


def init_weights(
    network: Network, *, generator: torch.Generator | None = None, only: Collection[str] | None = None
) -> None:
    """Give a network, or some of its parameters, the initial weights that its family was published with.

    Matrices and tables are normal, of `config.initializer_range`, biases 0, norms 1, and the row of the
    table that pads is 0. Where a family differs its config says so (`initial`): GPT-2 divides what is added
    to the residual stream by sqrt(2 L), T5 has a size for every kind of matrix, ModernBERT cuts off the
    tails. They are drawn in float32 on the CPU, parameter by parameter, whatever type and device the network
    has.

    Args:
        network: with memory for its parameters, tied ones drawn once.
        generator: of the random numbers, on the CPU; None for torch's own.
        only: the names of the parameters that are meant, as a new head's; None for all.

    Raises:
        InputError: a lens on somebody else's model, or a network on the meta device.

    Source: each family's code in `transformers`, with which `tests/parity/test_init.py` compares.
    """
    config = our_own(network).config
    assert isinstance(config, FamilyConfig)
    if any(parameter.is_meta for parameter in network.parameters()):
        raise InputError(
            "network must have memory for its parameters; got one on the meta device. "
            "new_network(config) makes it with them."
        )
    choice = choice_of(config)
    scheme = config.initial() if choice is None else {**choice.initial(), **config.initial()}
    fill(network, scheme, std=config.initial_std, generator=generator, only=only)
