"""What configs of all families share: fields that say how config.json spells them, and sizes that can be."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from regard.checkpoints import IGNORED_FIELDS, Fields, HeadKind, head_of, label_names, num_labels
from regard.core.arguments import NotNegative, check_fields, numbers
from regard.core.errors import CheckpointError, InputError
from regard.models._init import Scheme

Size = Annotated[int, numbers("at least 1 and below 2^31", lambda size: 1 <= size < 2**31)]
Rows = Annotated[int, numbers("at least 0 and below 2^31", lambda rows: 0 <= rows < 2**31)]
"""The rows of a table that a network may lack."""
Rate = Annotated[float, numbers("a probability below 1", lambda rate: 0 <= rate < 1)]
"""A rate of dropout."""
Small = NotNegative
"""Epsilon of a norm, or the standard deviation of what is drawn."""

_SPELLING = "hf"
_DEFAULT: Any = object()


def hf(
    name: str,
    default: Any,
    *,
    absent: Any = _DEFAULT,
    null: Any = _DEFAULT,
    is_required: bool = False,
    is_derived: bool = False,
    is_shown: bool = True,
) -> Any:
    """A field of a config that config.json has under `name`, held to the field's type.

    `absent` and `null` are what its absence and `null` mean in a file, by default `default`, and None where
    the type is optional. A derived field is written by this name, but read by the config's own `derived`. One
    that is not shown is not in the config's `repr`, and so in no fingerprint of what a pass depends on.
    """
    absent = default if absent is _DEFAULT else absent
    spelling = _Spelling(name=name, absent=absent, null=null, is_required=is_required, is_derived=is_derived)
    return field(default=default, repr=is_shown, metadata={_SPELLING: spelling})


@dataclass(frozen=True, kw_only=True)
class _Spelling:
    name: str
    absent: Any
    null: Any
    is_required: bool
    is_derived: bool

    def read(self, given: Fields, kind: Any) -> Any:
        if get_origin(kind) is Literal:
            return given.expect(self.name, get_args(kind), default=self.absent)
        plain, *others = get_args(kind) or (kind,)  # of `int | None` the first
        if self.is_required:
            return given.require(self.name, plain)
        if not others and self.null is _DEFAULT:
            return given.get(self.name, plain, self.absent)
        value = given.get_or_null(self.name, plain, self.absent)
        return self.null if value is None and self.null is not _DEFAULT else value


@dataclass(frozen=True, kw_only=True)
class FamilyConfig:
    """The sizes of a network, and the fields of config.json that give them.

    A family declares its fields with `hf`, and overrides `derived` and `extra` where a file says more.

    Attributes:
        STEMS: how the names of `transformers`' classes begin, by `model_type`.
        ENDINGS: how they end, for every head that the family has.
        IGNORED_FIELDS: fields of the family's files that change nothing.
        ABSENT: fields below that the family has no use for, and that nobody can set for training.

    Args:
        vocab_size: rows of the table of learned embeddings.
        d_model: size of the residual stream.
        num_layers: attention layers; of the encoder, where there are two stacks.
        num_heads: query heads a layer.
        d_ff: size inside the feed-forward network.
        activation: of the feed-forward network.
        head: what the checkpoint's head is for, or None.
        num_labels: of a classifier.
        labels: their names (`id2label`); none where nobody named them.
        tie_word_embeddings: whether the output layer to the vocabulary is the table of learned embeddings.
        pad_token_id: what fills up a text. A classifier that reads a text's last token reads the one before
            the padding, and some families count positions by it. Elsewhere it changes no number:
            `transformers` only keeps the row of that id from being trained.
        initializer_range: standard deviation of the weights before training; see `init_weights`.
    """

    STEMS: ClassVar[Mapping[str, str]]
    ENDINGS: ClassVar[Mapping[HeadKind | None, str]] = MappingProxyType(
        {None: "Model", "sequence": "ForSequenceClassification", "token": "ForTokenClassification"}
    )
    IGNORED_FIELDS: ClassVar[frozenset[str]] = frozenset()
    ABSENT: ClassVar[frozenset[str]] = frozenset()

    vocab_size: Size = hf("vocab_size", 30522, is_required=True)
    d_model: Size = hf("hidden_size", 768, is_required=True)
    num_layers: Size = hf("num_hidden_layers", 12, is_required=True)
    num_heads: Size = hf("num_attention_heads", 12, is_required=True)
    d_ff: Size = hf("intermediate_size", 3072, is_required=True)
    activation: str = hf("hidden_act", "gelu")
    head: HeadKind | None = None
    num_labels: Size = 2
    labels: tuple[str, ...] = field(default=(), repr=False)
    tie_word_embeddings: bool = hf("tie_word_embeddings", True)
    pad_token_id: int | None = hf("pad_token_id", 0)
    initializer_range: Small = hf("initializer_range", 0.02, null=0.02, is_shown=False)

    @property
    def model_type(self) -> str:
        """The family's name in config.json."""
        return next(iter(self.STEMS))

    @property
    def num_token_types(self) -> int:
        """Rows of the table of token types: 0 where a family has none."""
        return 0

    @property
    def pad_row(self) -> int | None:
        """The row of the table of learned embeddings that looking it up does not train; None for none."""
        pad, rows = self.pad_token_id, self.vocab_size
        return pad if pad is not None and -rows <= pad < rows else None

    @property
    def initial_std(self) -> float:
        """Standard deviation of what `initial` does not name, before training."""
        return self.initializer_range

    def trimmed(self) -> Self:
        """With those of its optional parts that its head reads, and no other: as it is trained."""
        return self

    def with_head(self, head: HeadKind, num_labels: int | None, labels: Sequence[str]) -> Self:
        """The same with another head.

        Raises:
            InputError: one that the family does not have.
        """
        number = len(labels) or num_labels or self.num_labels
        names = tuple(labels) or (self.labels if len(self.labels) == number else ())
        config = replace(self, head=head, num_labels=number, labels=names).trimmed()
        config.to_hf()  # refuses what no file can say
        return config

    def initial(self) -> Scheme:
        """What is drawn otherwise before training, by patterns of the network's names."""
        return {}

    def penalties(self) -> Mapping[str, float]:
        """What training for the next token adds to the loss: for each tap of every attention, by its name, a
        factor of its mean over tokens, summed over the layers."""
        return {}

    @classmethod
    def of_sizes(cls, **given: Any) -> Self:
        """A config whose other fields follow from those given, as a file that lacks them is read.

        Example:
            >>> from regard.models.families.llama import LlamaConfig
            >>> LlamaConfig.of_sizes(d_model=12, num_layers=2, num_heads=3, num_kv_heads=3).head_dim
            4
        """
        # Where layers have types, their list and the rotary embeddings must follow the sizes, as they follow
        # those of a file; other families need no more than their defaults.
        if "layer_types" not in cls.__dataclass_fields__:
            return cls(**given)
        plain = cls(**given)
        spelled = {each.name: each.metadata[_SPELLING].name for each in fields(cls) if each.metadata}
        written = {spelled[name]: value for name, value in given.items() if name in spelled}
        read = {each.name: getattr(plain, each.name) for each in fields(cls)}
        return cls(**cls.derived(Fields(file=Path("model"), values=written), (), read) | given)

    @classmethod
    def from_hf(cls, fields: Fields, tensors: Collection[str]) -> Self:
        """Read config.json; some things stand only in the names of the stored tensors.

        Raises:
            CheckpointError: fields that are missing, wrong, unknown, or ask for another architecture.
        """
        read = _read_declared(cls, fields)
        read |= cls.read_head(fields, tensors)
        read |= cls.derived(fields, tensors, read)
        fields.done(IGNORED_FIELDS | cls.IGNORED_FIELDS, fields.values.get("model_type"))
        return cls(**read)

    @classmethod
    def read_head(cls, fields: Fields, tensors: Collection[str]) -> dict[str, Any]:
        """The arguments `head`, `num_labels` and `labels`."""
        return _labelled(head_of(fields), fields)

    @classmethod
    def derived(cls, fields: Fields, tensors: Collection[str], read: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that no single field gives, next to `read`, those that fields gave. It refuses other
        architectures."""
        return {}

    def to_hf(self) -> dict[str, Any]:
        """The fields of config.json.

        Raises:
            InputError: something that no file of the family can say.
        """
        declared = ((each.name, each.metadata.get(_SPELLING)) for each in fields(self))
        return {
            "architectures": [self._class_name()],
            "model_type": self.model_type,
            **{spelling.name: getattr(self, name) for name, spelling in declared if spelling is not None},
            "num_labels": self.num_labels,
            **self._names(),
            **self.extra(),
        }

    def _names(self) -> dict[str, Any]:
        if self.labels and len(self.labels) != self.num_labels:
            raise InputError(
                f"labels must be a name for each of num_labels = {self.num_labels}; got {len(self.labels)}."
            )
        numbered = {str(number): name for number, name in enumerate(self.labels)}
        numbers = {name: number for number, name in enumerate(self.labels)}
        return {"id2label": numbered, "label2id": numbers} if self.labels else {}

    def _class_name(self) -> str:
        """The class of `transformers` that reads what is written."""
        endings = self.endings()
        if self.head not in endings:
            raise InputError(
                f"head must be one that transformers has for {self.model_type}: "
                f"{', '.join(map(str, endings))}; got {self.head!r}."
            )
        return self.STEMS[self.model_type] + endings[self.head]

    def endings(self) -> Mapping[HeadKind | None, str]:
        """`ENDINGS`, for a family whose members differ."""
        return self.ENDINGS

    def extra(self) -> dict[str, Any]:
        """What is written beside the declared fields, or in their place."""
        return {}


def _labelled(head: HeadKind | None, fields: Fields) -> dict[str, Any]:
    number = num_labels(fields)
    return {
        "head": head,
        "num_labels": number,
        "labels": label_names(fields) if head in ("sequence", "token") else (),
    }


def _read_declared(config: type[FamilyConfig], given: Fields) -> dict[str, Any]:
    kinds = get_type_hints(config)
    spellings = ((each.name, each.metadata.get(_SPELLING)) for each in fields(config))
    return {
        name: spelling.read(given, kinds[name])
        for name, spelling in spellings
        if spelling is not None and not spelling.is_derived
    }


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(FamilyConfig):
    """A config of an encoder, which has a head only where the head's tensors are stored.

    A file may name a class with a head and hold none of its tensors, as when such a model was trained further
    without its head.

    Attributes:
        STARTS: how the names of a head's tensors begin, for every head that the family has.
        HEADS: endings of class names that the family reads otherwise than `regard.checkpoints.HEADS`.
    """

    ENDINGS: ClassVar[Mapping[HeadKind | None, str]] = MappingProxyType(
        {**FamilyConfig.ENDINGS, "masked-lm": "ForMaskedLM"}
    )
    STARTS: ClassVar[Mapping[HeadKind, str]]
    HEADS: ClassVar[Mapping[str, HeadKind | None]] = MappingProxyType({})

    @classmethod
    def read_head(cls, fields: Fields, tensors: Collection[str]) -> dict[str, Any]:
        """The arguments `head`, `num_labels` and `labels`."""
        kind = head_of(fields, cls.HEADS)
        starts = cls.starts(fields)
        if kind is not None and kind not in starts:
            raise CheckpointError(
                f"{fields.file}: the field 'architectures' names a class that predicts the next token; "
                f"regard has this family as an encoder, without a head or with one of {', '.join(starts)}"
            )
        head = kind if kind is not None and any(name.startswith(starts[kind]) for name in tensors) else None
        return _labelled(head, fields) if head in ("sequence", "token") else {"head": head}

    @classmethod
    def starts(cls, fields: Fields) -> Mapping[HeadKind, str]:
        """`STARTS`, for a family whose files choose between two."""
        return cls.STARTS


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(FamilyConfig):
    """A config of a decoder that predicts the next token.

    Args:
        classifier_dropout_p: of a classifier of tokens, in training.

    The others are those of `FamilyConfig`.
    """

    ENDINGS: ClassVar[Mapping[HeadKind | None, str]] = MappingProxyType(
        {**FamilyConfig.ENDINGS, "language-model": "ForCausalLM"}
    )

    head: HeadKind | None = "language-model"
    classifier_dropout_p: Rate = hf("classifier_dropout", 0.1)
    pad_token_id: int | None = hf("pad_token_id", None)


def check_sizes(config: Any) -> None:
    """Raise InputError for sizes or probabilities that no transformer has, or that do not fit together."""
    check_fields(config)
    if hasattr(config, "layer_types") and len(config.layer_types) != config.num_layers:
        raise InputError(
            f"layer_types must name the kind of each of the {config.num_layers} layers; got "
            f"{len(config.layer_types)}. {type(config).__name__}.of_sizes(num_layers=...) makes them fit."
        )
