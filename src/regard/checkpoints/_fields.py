"""A model's `config.json`, read so that no field which would change the result is passed over."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar, overload

from regard.checkpoints._hub import CONFIG
from regard.core.arguments import KINDS, plain, shown
from regard.core.errors import CheckpointError, InputError
from regard.core.files import read_object, read_objects
from regard.core.wording import joined

IGNORED_FIELDS: frozenset[str] = frozenset(
    {
        # where the file comes from, and what wrote it
        "_commit_hash",
        "_name_or_path",
        "architectures",
        "dtype",
        "model_type",
        "name_or_path",
        "torch_dtype",
        "transformers.js_config",
        "transformers_version",
        # what a call returns, and in which of several equivalent ways it is computed
        "_attn_implementation",
        "_attn_implementation_autoset",
        "attn_implementation",
        "chunk_size_feed_forward",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "return_dict",
        "torchscript",
        "use_bfloat16",
        "use_cache",
        "use_return_dict",
        "xla_device",
        # how a model is trained; dropout probabilities are not here, because a network holds them
        "gradient_checkpointing",
        # each is read by the families that have it
        "initializer_factor",
        "initializer_range",
        # The names are written by older versions with an underscore in front.
        # heads for tasks: how many labels there are is read by `num_labels`, their names by nobody
        "_num_labels",
        "classifier_dropout",
        "finetuning_task",
        "id2label",
        "label2id",
        "num_labels",
        "problem_type",
        "sbert_ce_default_activation_function",
        "sentence_transformers",
        "task_specific_params",
        "tokenizer_class",
        # special tokens; pad_token_id is not here, because some families count positions from it
        "bos_token_id",
        "decoder_start_token_id",
        "eos_token_id",
        "eos_token_ids",
        "prefix",
        "sep_token_id",
        # how text is generated
        "bad_words_ids",
        "begin_suppress_tokens",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "length_penalty",
        "max_length",
        "max_new_tokens",
        "min_length",
        "no_repeat_ngram_size",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "output_scores",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict_in_generate",
        "suppress_tokens",
        "temperature",
        "tf_legacy_loss",
        "top_k",
        "top_p",
        "typical_p",
    }
)
"""Fields that change nothing in any network, whatever their value."""

_IGNORED_FIELDS_AT: Mapping[str, object] = MappingProxyType(
    {
        "add_cross_attention": False,
        "cross_attention_hidden_size": None,
        "is_decoder": False,
        "is_encoder_decoder": False,
        "pruned_heads": {},
        "tie_encoder_decoder": False,
    }
)
"""Fields that change nothing at this value, and the network at any other; a family may still read them."""

_T = TypeVar("_T", bool, int, float, str, list[object], dict[str, object])
_S = TypeVar("_S", bool, int, float, str)
_V = TypeVar("_V")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    """The fields of a model's configuration, which remembers the ones that were read.

    A family asks for every field that it knows and ends with `done`, which raises if the file has others: an
    unread field that would change the result is an error, not a detail. A `null` is a value of its own; it is
    taken only where None is the default or an allowed value.

    Attributes:
        file: the file that errors name.
        values: the fields as JSON has them.
        path: what errors put before a field's name, for an object inside the file: `rope_parameters.`.
        notes: what `done` passed over, in words.

    >>> config = Fields(file=Path("config.json"), values={"hidden_size": 384, "model_type": "bert"})
    >>> config.require("hidden_size", int)
    384
    >>> config.get("layer_norm_eps", float, 1e-12)
    1e-12
    >>> config.done()
    """

    file: Path
    values: Mapping[str, object]
    path: str = ""
    notes: list[str] = field(default_factory=list, init=False, repr=False, compare=False)
    _inside: dict[str, "Fields"] = field(default_factory=dict, init=False, repr=False, compare=False)
    _read: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def require(self, key: str, kind: type[_T]) -> _T:
        """A field that must be there.

        Args:
            key: the field's name.
            kind: `bool`, `int`, `float`, `str`, `list` or `dict`. A whole number is a float where a float is
                wanted, and a bool is never a number.

        Raises:
            CheckpointError: the field is absent or of another type.
        """
        self._read.add(key)
        if key not in self.values:
            raise self._error(key, f"must be {KINDS[kind]}; it is missing")
        return self._typed(key, kind)

    @overload
    def get(self, key: str, kind: type[_T], default: _T) -> _T: ...
    @overload
    def get(self, key: str, kind: type[_T], default: None) -> _T | None: ...
    def get(self, key: str, kind: type[_T], default: _T | None) -> _T | None:
        """A field that may be absent, and then has the family's default; `null` is taken where that is None.

        Raises:
            CheckpointError: the field is of another type.
        """
        self._read.add(key)
        if key not in self.values:
            return default
        # null only where None is the default; elsewhere it is a value of the wrong type.
        if default is None and self.values[key] is None:
            return None
        return self._typed(key, kind)

    def get_or_null(self, key: str, kind: type[_T], default: _T | None) -> _T | None:
        """A field whose absence means the family's default, and whose `null` means None.

        >>> given = Fields(file=Path("config.json"), values={"sliding_window": None})
        >>> absent = Fields(file=Path("config.json"), values={})
        >>> given.get_or_null("sliding_window", int, 4096), absent.get_or_null("sliding_window", int, 4096)
        (None, 4096)

        Raises:
            CheckpointError: the field is of another type.
        """
        return self.get(key, kind, None) if key in self.values else default

    def unchecked(self, key: str) -> object:
        """A field that the file has, whatever it is; who asks checks it."""
        self._read.add(key)
        return self.values[key]

    def expect(self, key: str, allowed: Collection[_V], default: _V) -> _V:
        """A field that regard supports at these values only; `default` is what its absence means.

        >>> config = Fields(file=Path("config.json"), values={"position_embedding_type": "relative_key"})
        >>> config.expect("position_embedding_type", ("absolute",), "absolute")
        Traceback (most recent call last):
        regard.core.errors.CheckpointError: config.json: the field 'position_embedding_type' must be
            'absolute', all that regard supports; got 'relative_key'

        Raises:
            CheckpointError: the field, or its default, has another value.
        """
        self._read.add(key)
        value = self.values.get(key, default)
        for candidate in allowed:
            if _same(candidate, value):
                return candidate
        state = "got" if key in self.values else "it is missing, which means"
        listed = joined(repr(candidate) for candidate in allowed)
        raise self._error(key, f"must be {listed}, all that regard supports; {state} {value!r}")

    def sub(self, key: str) -> "Fields | None":
        """The object in a field, to be read as this one is, or None where the field is absent or `null`.

        What stays unread in it is an error of this object's `done`, where nothing inside counts as inert; an
        object that is a whole configuration, such as a `text_config`, can be given its own `done` before.

        >>> values = {"rope_parameters": {"rope_theta": 1e6, "factor": 8.0}}
        >>> config = Fields(file=Path("config.json"), values=values)
        >>> config.sub("rope_parameters").require("rope_theta", float)
        1000000.0
        >>> config.done()
        Traceback (most recent call last):
        regard.core.errors.CheckpointError: config.json: regard does not know these fields, which may change
            the result: rope_parameters.factor = 8.0; a field that changes nothing can be taken out of the
            file

        Raises:
            CheckpointError: the field is something else.
        """
        # The same object at each call: it remembers what was read of it.
        if key not in self._inside:
            inner = self.get(key, dict, None)
            if inner is None:
                return None
            values = MappingProxyType(inner)
            self._inside[key] = Fields(file=self.file, values=values, path=f"{self.path}{key}.")
        return self._inside[key]

    @overload
    def list_of(self, key: str, kind: type[_S], default: list[_S]) -> list[_S]: ...
    @overload
    def list_of(self, key: str, kind: type[_S], default: None) -> list[_S] | None: ...
    def list_of(self, key: str, kind: type[_S], default: list[_S] | None) -> list[_S] | None:
        """A field that is a list of values of one type, such as `layer_types`, or may be absent.

        >>> config = Fields(file=Path("config.json"), values={"layer_types": ["full_attention", 3]})
        >>> config.list_of("layer_types", str, None)
        Traceback (most recent call last):
        regard.core.errors.CheckpointError: config.json: the field 'layer_types[1]' must be a text; got 3.

        Raises:
            CheckpointError: the field is no list, or one of its values is of another type.
        """
        if key not in self.values:
            return default
        array: list[object] | None = self.get(key, list, None) if default is None else self.require(key, list)
        if array is None:
            return None
        # A Fields of its own for the items, so that errors name them as `layer_types[1]`.
        items = Fields(
            file=self.file,
            values={f"{key}[{number}]": value for number, value in enumerate(array)},
            path=self.path,
        )
        return [items.require(name, kind) for name in items.values]

    def done(self, inert: Collection[str] = IGNORED_FIELDS, model_type: object = None) -> None:
        """End the reading: every field of the file must have been read, or be known to change nothing.

        Args:
            inert: the fields that change nothing; a family with more hands in `IGNORED_FIELDS | {...}`.
            model_type: where `transformers` has such models, a field that it neither declares nor reads of
                them, and that is no slip of a letter, goes into `notes`.

        Raises:
            CheckpointError: there are other fields; the message lists them all.
        """
        # Passed over: known to change nothing.
        passed = {key for key in self.values if key in inert or self._is_inert_at_its_value(key)}
        known = known_fields(model_type)
        # Fields that no version of transformers knows cannot change its result, so they are noted, and
        # no error.
        strange = sorted(self.values.keys() - self._read - passed - known) if known else []
        # Except slips: `hiden_size` would be a field that somebody wanted.
        if strange := [key for key in strange if not self._meant(key)]:
            listed = ", ".join(f"{key} = {shown(self.values[key])}" for key in strange)
            versions = ", ".join(_known()["versions"])
            note = f"passed over {listed}: transformers ({versions}) neither declares nor reads it"
            self.notes.append(f"{self.file}: {note}")
            passed.update(strange)
        # What is left is known to transformers, and not to regard: it may change the result.
        if unread := self._unread(passed):
            raise CheckpointError(
                f"{self.file}: regard does not know these fields, which may change the result: "
                f"{joined(unread)}; a field that changes nothing can be taken out of the file"
            )

        self._read.update(passed)

    def _unread(self, passed: Collection[str]) -> list[str]:
        """The fields neither read nor passed over, here and in the objects inside, as errors list them."""
        unread = []
        for key in sorted(self.values):
            if key not in self._read and key not in passed:
                hint = "".join(f" (did you mean {each}?)" for each in self._meant(key))
                unread.append(f"{self.path}{key} = {shown(self.values[key])}{hint}")
            # Objects inside are held to the same rule, without inert fields of their own.
            elif key in self._inside:
                unread += self._inside[key]._unread(())
        return unread

    def _meant(self, key: str) -> list[str]:
        """The field of which a name is a slip; fields resemble each other: of a letter or two at most."""
        # Only fields that were asked for and were absent can be what was meant.
        return get_close_matches(key, self._read - self.values.keys(), n=1, cutoff=0.85)

    def _is_inert_at_its_value(self, key: str) -> bool:
        return key in _IGNORED_FIELDS_AT and _same(_IGNORED_FIELDS_AT[key], self.values[key])

    def _typed(self, key: str, kind: type[_T]) -> _T:
        try:
            return plain(f"the field {self.path + key!r}", self.values[key], kind)
        except InputError as error:
            raise CheckpointError(f"{self.file}: {error}") from None

    def _error(self, key: str, told: str) -> CheckpointError:
        return CheckpointError(f"{self.file}: the field {self.path + key!r} {told}")


@cache
def _known() -> dict[str, list[str]]:
    """What `scripts/config_fields.py` found in several versions of `transformers`."""
    # The file beside this module has names in rows; it is read once a process.
    written: dict[str, str] = json.loads(Path(__file__).with_name("config_fields.json").read_text("utf-8"))
    return {name: names.split() for name, names in written.items()}


def known_fields(model_type: object) -> frozenset[str] | None:
    """The fields that `transformers` declares for a model type or reads of it; None of a type that it lacks.

    >>> "unk_token_id" in known_fields("llama"), "rope_theta" in known_fields("llama"), known_fields("srupp")
    (False, True, None)
    """
    own = _known().get(str(model_type))
    # "any" are the fields that every configuration of transformers has.
    return None if own is None else frozenset([*own, *_known()["any"]])


def read_config(folder: str | PathLike[str], name: str = CONFIG) -> Fields:
    """The `config.json` of a model's folder, or another file of fields.

    Raises:
        CheckpointError: the file is missing or unreadable, or does not hold one JSON object.

    >>> from regard.checkpoints import find
    >>> read_config(find("all-MiniLM-L6-v2").folder).require("num_hidden_layers", int)
    6
    """
    file = Path(folder) / name
    return Fields(file=file, values=MappingProxyType(read_object(file)))


def read_config_list(folder: str | PathLike[str], name: str) -> list[Fields]:
    """The objects of a file that holds a list of them; errors name a field as `[1].path`.

    Raises:
        CheckpointError: the file is missing or unreadable, or does not hold one JSON list of objects.

    >>> from regard.checkpoints import find
    >>> folder = find("all-MiniLM-L6-v2").folder
    >>> [module.require("path", str) for module in read_config_list(folder, "modules.json")]
    ['', '1_Pooling', '2_Normalize']
    """
    file = Path(folder) / name
    return [
        Fields(file=file, values=MappingProxyType(values), path=f"[{number}].")
        for number, values in enumerate(read_objects(file))
    ]


def _same(wanted: object, value: object) -> bool:
    """Equality as JSON has it: True is not 1, but 1 is 1.0."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        # In Python True == 1; in a configuration they are different settings.
        return wanted is value
    return wanted == value
