"""`regard.load`, `regard.lens` and the `Model` that they return: where all capabilities meet."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from regard import foreign
from regard.api._embedding import Embedding
from regard.api._interventions import Interventions
from regard.api._writing import Writing
from regard.checkpoints import DEFAULT_MODEL

if TYPE_CHECKING:
    import torch


class Model(Interventions, Embedding, Writing):
    """A network with its tokenizer, as `regard.load` and `regard.lens` return it.

    `model.trace(text)` records a run, `model.embed` makes vectors, `model.edited` changes what the network
    computes, and `model.generate` writes. `model(token_ids)` runs the network itself.

    Example:
        >>> import regard
        >>> model = regard.load()
        >>> model
        Model('sentence-transformers/all-MiniLM-L6-v2', bert, 6 layers x 12 heads, d_model 384)
        >>> model.trace("time flies like an arrow").token_ids
        [101, 2051, 10029, 2066, 2019, 8612, 102]
    """


def load(
    name_or_folder: str | PathLike[str] | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    leave_out: Sequence[str] = (),
    packed: bool = True,
) -> Model:
    """Load a model with its tokenizer.

    A name is looked up in this order: as a folder (a training run's counts) or a GGUF file, as an installed
    model package, in the Hugging Face cache, on the Hugging Face hub. A checkpoint of a type that is none of
    regard's families is run by `transformers`, through the lens (see `lens`); `loaded.notes` says so.

    Args:
        name_or_folder: None is sentence-transformers/all-MiniLM-L6-v2.
        dtype: the type to convert the weights to; None keeps the stored one.
        device: the device to put them on; None is the CPU.
        leave_out: beginnings of the names of stored tensors that are not the network's, such as `fc.` of a
            head of your own, which are not read; `save` then writes a folder without them.
        packed: whether weights that a GGUF file stores in fewer bits stay in its blocks, on the CPU, and are
            unpacked when they are used: the model then takes no more memory than the file, and gives the same
            numbers; its weights cannot be changed. False unpacks them all, to float32 or `dtype`.

    Returns:
        The model, in evaluation mode.

    Raises:
        ModelNotFoundError: no model of that name can be loaded from here.
        CheckpointError: the files are damaged, do not fit together, or are of a type that neither regard nor
            `transformers` implements, or that the lens cannot see.
        MissingExtraError: they are of another type than regard's, and `transformers` is not installed.
        InputError: a beginning in `leave_out` that no stored name has.

    Example:
        >>> import regard
        >>> regard.load().config.num_layers
        6
    """
    name = DEFAULT_MODEL if name_or_folder is None else name_or_folder
    return Model(foreign.load(name, dtype=dtype, device=device, leave_out=leave_out, packed=packed))


def lens(hf_model: Any, tokenizer: Any = None, *, name: str | None = None) -> Model:
    """Make a `Model` of a `transformers` model that you have built or loaded yourself.

    The model runs as it is, with its own modules and its own fused attention; regard reads the tensors that
    enter and leave attention. It needs a model that calls attention through transformers' registry. Nothing
    is left behind in the model, even after an exception.

    Args:
        hf_model: a `transformers.PreTrainedModel` in evaluation mode.
        tokenizer: its tokenizer, from transformers or tokenizers; None if you will give token ids only.
        name: the name of the model; by default the name it was loaded by, or its class.

    Returns:
        The same `Model` as from `load`; `model.parity()` is the result of the check on creation.

    Raises:
        InputError: regard cannot see all of the model's attention (the message says what), or the tokenizer
            is not one.
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
    return Model(foreign.lens(hf_model, tokenizer, name=name))
