"""How a model comes to be: from a checkpoint, or over a model of transformers."""

from os import PathLike
from typing import TYPE_CHECKING, Any

from regard import _lens
from regard._model._model import Model
from regard.checkpoints import DEFAULT_MODEL
from regard.models import load_checkpoint

if TYPE_CHECKING:
    import torch


def load(
    name_or_folder: str | PathLike[str] | None = None,
    *,
    dtype: "torch.dtype | None" = None,
    device: "torch.device | str | None" = None,
) -> Model:
    """Load a model with its tokenizer.

    A name is looked up, in this order, as a folder, an installed model package, in the Hugging Face cache,
    and on the Hugging Face hub.

    Args:
        name_or_folder: None is sentence-transformers/all-MiniLM-L6-v2.
        dtype: what the weights are converted to; None keeps the stored one.
        device: where they are put; None is the CPU.

    Returns:
        The model, in evaluation mode.

    Raises:
        ModelNotFoundError: nothing of that name can be loaded from here.
        CheckpointError: the files are damaged, of a family regard does not implement, or do not fit.

    Example:
        >>> import regard
        >>> regard.load().config.num_layers
        6
    """
    name = DEFAULT_MODEL if name_or_folder is None else name_or_folder
    return Model(load_checkpoint(name, dtype=dtype, device=device))


def lens(hf_model: Any, tokenizer: Any = None, *, name: str | None = None) -> Model:
    """Look at any `transformers` model that calls attention through transformers' registry.

    The model runs as it is: its own modules, its own fused attention, with what enters and leaves attention
    read on the way. Nothing is left behind in it, also after an exception.

    Args:
        hf_model: a `transformers.PreTrainedModel` in evaluation mode.
        tokenizer: its tokenizer, from transformers or tokenizers; None where only token ids will be given.
        name: what it is called; by default the name it was loaded by, or its class.

    Returns:
        The same `Model` as `load` gives; `model.parity()` is what the check on creation found.

    Raises:
        InputError: a model that cannot be seen (the message names what), or a tokenizer that is none.
        RegardError: the check on creation found other numbers than the model's.
        MissingExtraError: transformers is not installed.

    Example:
        >>> import regard
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=31, n_embd=6, n_layer=2, n_head=3, n_positions=17)
        >>> model = regard.lens(GPT2LMHeadModel(config).eval())
        >>> model.trace(token_ids=[3, 1, 4]).weights(layer=1, head=0).shape
        torch.Size([3, 3])
    """
    return Model(_lens.lens(hf_model, tokenizer, name=name))
