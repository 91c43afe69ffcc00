"""A network, new or loaded, with its tokenizer and where they came from: what every capability needs."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from regard.blocks import Packing
from regard.checkpoints import (
    DEFAULT_MODEL,
    Fields,
    GGUFFile,
    HeadKind,
    KeyMap,
    Source,
    TensorReader,
    head_of,
    load_into,
    locate,
    network_folder,
    open_gguf,
    read_config,
    read_tensors,
    unwrapped,
    verify,
)
from regard.core.errors import CheckpointError, InputError
from regard.core.tensors import fingerprint
from regard.models._attentions import choice_of, without_prefix
from regard.models._config import FamilyConfig
from regard.models._init import WithoutValues, blank, fill
from regard.models._network import Network
from regard.models._surgery import cut_as_stored, our_own, without_pruned
from regard.models._transformer import Transformer
from regard.models.families import FAMILIES, Family, family_of, gguf_checkpoint
from regard.text import Tokenizer, doubt


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A network, its tokenizer, and where they came from.

    Args:
        network: in evaluation mode; its weights are the stored ones, untouched.
        tokenizer: None where the folder has none; then only token ids can be given.
        source: the name asked for, the folder it was found in, and how.
        family: `model_type`, a name in `FAMILIES`.
        left_out: stored tensors that the network does not hold, such as a language-model head.
        begun: the network's parameters that were not stored, those of a new head: drawn anew.
        notes: how the files were read, where they leave a doubt.
    """

    network: Network
    tokenizer: Tokenizer | None
    source: Source
    family: str
    left_out: tuple[str, ...]
    begun: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            CheckpointError: the folder has none.
        """
        if self.tokenizer is None:
            raise CheckpointError(
                f"{self.source.folder} has no tokenizer, which text needs; add its files, such as "
                "tokenizer.json, or, in Python, give token_ids= in place of a text."
            )
        return self.tokenizer

    def mark(self) -> str:
        """A hash of the config, of edits, and of all parameters and buffers: name, shape, type, bytes."""
        # Buffers that are not stored follow from the config; some grow with the texts that were seen.
        # state_dict holds parameters, and the buffers that are stored.
        stored = self.network.state_dict().keys()
        buffers = ((name, buffer) for name, buffer in self.network.named_buffers() if name in stored)
        # A lens gives only what it has seen: the config of a transformers model also holds names and paths.
        about = f"{self.network.config!r}{choice_of(self.network.config) or ''}{''.join(self.network.edits)}"
        return fingerprint(about, chain(self.network.named_parameters(), buffers))


def load_checkpoint(
    name: str | PathLike[str] = DEFAULT_MODEL,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    head: HeadKind | None = None,
    num_labels: int | None = None,
    labels: Sequence[str] = (),
    dropout: Mapping[str, float] = MappingProxyType({}),
    seed: int = 0,
    leave_out: Sequence[str] = (),
    packed: bool = True,
) -> Loaded:
    """Find a checkpoint, check that config and weights fit, and read it.

    Args:
        name: a folder, the name of an installed model package, or of a model on the Hugging Face hub.
        dtype: what the weights are converted to; None keeps the stored one.
        device: where they are put; None is the CPU.
        head: the head that the network is to have: "masked-lm", "language-model", "sequence" or "token"; None
            for the stored one. What of it is not stored, or in another shape, is drawn as by `init_weights`
            and named in `Loaded.begun`; another kind of classifier's layers are not taken for it.
        num_labels, labels: how many a classifier tells apart, or their names; by default as stored.
        dropout: rates in place of the stored ones, by the config's fields, such as {"dropout_p": 0.3}.
        seed: of the random numbers of a new head.
        leave_out: beginnings of the names of stored tensors that are not the network's, such as `fc.` of a
            head of your own. They are not read, and named in `Loaded.left_out`.
        packed: whether weights that a GGUF file stores in fewer bits stay in its blocks, on the CPU, and are
            unpacked when they are used: the network then takes no more memory than the file, and its weights
            cannot be changed. False unpacks them all, to float32 or `dtype`.

    Returns:
        The network in evaluation mode, with its tokenizer where there is one.

    Raises:
        ModelNotFoundError: nothing of that name can be loaded from here.
        CheckpointError: files damaged, of an unknown family, or not fitting together; a classifier without
            its tensors, where no `head` is given.
        InputError: a head that the family does not have; `num_labels` for a head without labels; a beginning
            in `leave_out` that no stored name has.

    Example:
        >>> from regard.models import load_checkpoint
        >>> load_checkpoint().network.config.num_heads
        12
    """
    # What the caller gave is checked before any file is opened.
    if dtype not in (None, *_DTYPES):
        raise InputError(f"dtype must be torch.float32, float64, bfloat16 or float16; got {dtype}.")
    _check_device(device)
    if isinstance(leave_out, str) or not all(isinstance(each, str) and each for each in leave_out):
        raise InputError(f"leave_out must be a list of beginnings of names, as ['fc.']; got {leave_out!r}.")
    # A folder, a file, or a name in the cache.
    source = locate(name)
    # Hashing leaves the interpreter free: it takes its time beside the rest.
    with ThreadPoolExecutor(1) as beside:
        # The hash of a published checkpoint is compared while the weights are read.
        genuine = beside.submit(verify, source)
        try:
            asked = _Asked(head, num_labels, tuple(labels), dropout, seed, tuple(leave_out), packed)
            return _read(source, dtype, device, asked)
        finally:
            genuine.result()  # the first error: what else went wrong may come of it


class _Asked(NamedTuple):
    """What the caller wants: which head, and which tensors left out."""

    head: HeadKind | None
    num_labels: int | None
    labels: tuple[str, ...]
    dropout: Mapping[str, float]
    seed: int
    leave_out: tuple[str, ...]
    packed: bool

    def networks_own(
        self, tensors: TensorReader, keys: KeyMap
    ) -> tuple[TensorReader, tuple[str, ...], set[str]]:
        """The tensors without those to be left out, the wrappers taken off their names, and what was left."""
        # Asked before and after wrappers are taken off: a name may be meant either way.
        left = self._left_out(tensors)
        # Once more below: what a name begins with may stand behind a wrapper's `module.`.
        tensors, wrappers = unwrapped(tensors.without(left), keys)
        left |= self._left_out(tensors)
        if unused := [each for each in self.leave_out if not any(name.startswith(each) for name in left)]:
            raise InputError(f"leave_out has {unused[0]!r}, with which no name of a stored tensor begins.")
        return tensors.without(left), wrappers, left

    def _left_out(self, tensors: TensorReader) -> set[str]:
        return {name for name in tensors.names() if name.startswith(self.leave_out)}

    def with_head(self, stored: Any, fields: Fields) -> Any:
        """The config with that head."""
        # The head asked for, else the one that is stored.
        head = stored.head if self.head is None else self.head
        # Nothing of the classifier is stored: a new one only where somebody asks for it.
        if head is None and (named := head_of(fields, getattr(stored, "HEADS", {}))) in _CLASSIFY:
            raise CheckpointError(
                f"{fields.file}: the field 'architectures' names a classifier, but none of its tensors is "
                f"stored; in Python, load_checkpoint(..., head={named!r}) begins a new one."
            )
        # Nothing about labels: the head alone may change.
        if self.num_labels is None and not self.labels:
            return stored if self.head is None else stored.with_head(head, None, ())
        if head not in _CLASSIFY:
            raise InputError(
                f"head must be 'sequence' or 'token' where num_labels or labels are given; got {head!r}."
            )
        if self.labels and self.num_labels not in (None, len(self.labels)):
            raise InputError(
                f"num_labels must be {len(self.labels)}, as many as labels; got {self.num_labels}."
            )
        return stored.with_head(head, self.num_labels, self.labels)

    def not_its(self, stored: Any, config: Any, keys: KeyMap, names: Collection[str]) -> set[str]:
        """Stored tensors of a pooler that nothing reads, and of another kind of classifier, which may
        have the names of this one's."""
        left: set[str] = set()
        # The new head reads no pooler.
        if getattr(stored, "use_pooler", False) and not config.use_pooler:
            left |= {name for name in names if "".join(keys.to_ours(name)).startswith("pooler.")}
        # A classifier of the other kind uses the same names on disk.
        if self.head in _CLASSIFY and stored.head != self.head:
            left |= {name for name in names if keys.is_head(name) and name.startswith(_LAYERS)}
        return left


_CLASSIFY = ("sequence", "token")
_LAYERS = ("classifier.", "pre_classifier.", "classification_head.", "score.")
"""What the families' files call a classifier's layers."""


def _read(
    source: Source, dtype: torch.dtype | None, device: torch.device | str | None, asked: _Asked
) -> Loaded:
    # From here: fields, family, names, config, network, weights, tokenizer.
    folder, gguf = network_folder(source.folder), None
    if source.is_file:
        gguf = open_gguf(folder)
        read, tensors = gguf_checkpoint(gguf)
    else:
        read, tensors = read_config(folder), read_tensors(folder)
    # What regard itself adds to config.json is taken off before a family reads it.
    fields, pruned = without_pruned(without_prefix(read))
    family = _family(source, fields, tensors)
    # GGUF files store all matrices as (d_out, d_in).
    keys = family.keys if gguf is None else family.keys.untransposed()
    # Names without `module.` and the like, which training wrappers add.
    tensors, wrappers, left_out = asked.networks_own(tensors, keys)
    # Before anything is built by numbers from a file.
    check_depth(fields.file, fields.values, len(tensors.names()))
    # The config of what is stored, and then that of what was asked for.
    stored = replace(family.config.from_hf(fields, tensors.names()), **asked.dropout)
    config = asked.with_head(stored, fields)
    unread = asked.not_its(stored, config, keys, tensors.names())
    tensors = tensors.without(unread)
    try:
        with blank():  # memory comes with the stored tensors
            # On the meta device: shapes only.
            network = family.build(config)
            # Heads that were removed before it was saved.
            cut_as_stored(network, pruned, fields.file)
    except (InputError, RuntimeError) as error:  # torch raises the latter for a table of 2^62 rows
        raise CheckpointError(f"{fields.file}: {error}") from error
    if dtype is None:  # else all are converted to one that layers compute in
        _check_types(folder, tensors)
    # A tensor may be missing of a head that was asked for; of a stored one that is damage.
    new = ("head.", "pooler.") if config is not stored else ()
    # Blocks are multiplied on the CPU only.
    stays = asked.packed and torch.device(device or "cpu").type == "cpu"
    packing = Packing(network, dtype or torch.float32) if stays else None
    # Fills each parameter, and says what began anew or was left out.
    report = load_into(network, tensors, keys, dtype=dtype, device=device, may_begin=new, packing=packing)
    if report.begun:
        # Only the parameters that no file has.
        init_weights(network, generator=torch.Generator().manual_seed(asked.seed), only=report.begun)
    notes = (f"{each!r} was taken off the names of the tensors" for each in wrappers)
    return Loaded(
        # Without dropout, until somebody trains it.
        network=network.eval(),
        tokenizer=_tokenizer(folder, family, network, gguf),
        source=source,
        family=family.name,
        left_out=tuple(sorted({*report.left_out, *unread, *left_out})),
        begun=report.begun,
        notes=(*notes, *fields.notes, *(doubt(folder, family.tokenizer_class) if gguf is None else ())),
    )


class UnknownFamilyError(CheckpointError):
    """A model of a type that is none of the families: `foreign.load` has it seen through the lens."""

    def __init__(self, message: str, source: Source, model_type: str) -> None:
        super().__init__(message)
        self.source, self.model_type = source, model_type


def _family(source: Source, fields: Fields, tensors: TensorReader) -> Family:
    if "model_type" not in fields.values:
        raise CheckpointError(f"{fields.file}: the field 'model_type' is missing{_resembled(tensors)}")
    # The field alone decides; the names of tensors only help to say what is missing.
    model_type = fields.require("model_type", str)
    try:
        family = family_of(model_type)
    except InputError as error:
        raise UnknownFamilyError(f"{fields.file}: {error}", source, model_type) from error
    # A folder with a config alone, as where a download was cut off.
    if not tensors.names():
        raise CheckpointError(f"{tensors.folder} holds no tensors; its weights are missing.")
    return family


def check_depth(file: Path, fields: Mapping[str, Any], most: int) -> None:
    """Refuse a file that asks for 10^9 layers, each of which has a tensor of its own, before any is built."""
    # Some files have a model's fields inside another object.
    inner = (each.items() for each in fields.values() if isinstance(each, dict))
    for name, value in chain(fields.items(), *inner):
        if name in _DEPTHS and isinstance(value, int) and value > most:
            raise CheckpointError(
                f"{file}: the field {name!r} must be at most {most}, the number of stored tensors; "
                f"got {value}."
            )


def _check_types(folder: Path, tensors: TensorReader) -> None:
    stored = {tensors.dtype(name) for name in tensors.names() if tensors.dtype(name).is_floating_point}
    # float8, for one: stored, but no layer computes in it.
    if odd := ", ".join(sorted(str(each) for each in stored.difference(_DTYPES))):
        raise CheckpointError(f"{folder} stores {odd}, which no layer computes in; pass dtype=.")


def _tokenizer(folder: Path, family: Family, network: Transformer, gguf: GGUFFile | None) -> Tokenizer | None:
    if gguf is None:
        tokenizer = Tokenizer.from_folder(folder, tokenizer_class=family.tokenizer_class)
    else:
        tokenizer = Tokenizer.from_gguf(gguf.fields, file=folder)
    # A tokenizer may know more tokens than the tables have rows.
    rows = [network.stack(kind).embeddings.tokens.num_embeddings for kind in network.prefixes]
    return None if tokenizer is None else tokenizer.within(rows[0], rows[-1])


def _resembled(tensors: TensorReader) -> str:
    """What to add to config.json, told by the names of the tensors; "" where they tell nothing."""
    keys = {name: family_of(name).keys for name in FAMILIES}
    # How many of the stored names each family knows.
    known = {name: sum(map(bool, map(keys[name].match, tensors.names()))) for name in FAMILIES}
    names = " or ".join(f'"{name}"' for name in FAMILIES if known[name] == max(known.values()) > 0)
    return f'; by the names of its tensors, add the line "model_type": {names}' if names else ""


_DEPTHS = (
    *("num_hidden_layers", "num_layers", "num_decoder_layers", "n_layer", "n_layers"),
    *("encoder_layers", "decoder_layers"),
)
"""What the families' files call the number of layers."""

_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def _check_device(device: torch.device | str | None) -> None:
    try:
        # The quickest question to torch whether a device works.
        if torch.empty(0, device=device).is_meta:
            raise RuntimeError("it holds no numbers")
    # A build of torch without the device raises AssertionError, an unknown name RuntimeError.
    except (AssertionError, RuntimeError) as error:
        there = "cpu or cuda" if torch.cuda.is_available() else "cpu"
        raise InputError(
            f"device must be one that torch has here, such as {there}; got {device!r}."
        ) from error


def new_network(config: FamilyConfig, *, seed: int = 0) -> Transformer:
    """A network of its family's own initial weights, in float32 on the CPU, in training mode.

    Args:
        config: the family's, such as `regard.models.families.bert.BertConfig`. A pooler that its head does
            not read is left out.
        seed: of the random numbers; the same one gives the same network, wherever it then goes.

    Raises:
        InputError: sizes that no network can have.

    Example:
        >>> from regard.models import new_network
        >>> from regard.models.families.gpt2 import Gpt2Config
        >>> network = new_network(Gpt2Config(vocab_size=13, d_model=6, num_layers=2, num_heads=2, d_ff=11))
        >>> network.training, network.decoder.layers[0].ffn.hidden.bias.unique().tolist()
        (True, [0.0])
    """
    with WithoutValues():
        # Real memory here, since `fill` writes into it.
        # As in loading: shapes only.
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
    # An attention's own parameters, then the family's, which may overrule them.
    scheme = config.initial() if choice is None else {**choice.initial(), **config.initial()}
    fill(network, scheme, std=config.initial_std, generator=generator, only=only)
