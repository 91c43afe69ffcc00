"""A family's weight map: which tensor on disk is which of the network's. Data, and it works both ways."""

import functools
import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from regard.core.errors import CheckpointError

_PLACEHOLDERS = {
    # What a placeholder stands for: numbers without leading zeros, so that each name is written in one
    # way only.
    "layer": "0|[1-9][0-9]*",
    "part": "weight|bias",
    "rotary": r"(?:layers\.\d+\.(?:self_)?attn\.)?rotary_emb(?:_local)?\.(?:\w+_attention_)?(?:original_)?",
}


Holds: TypeAlias = Callable[[Tensor, Any], Any]
"""Whether a stored constant is what the network has in its place."""


@dataclass(frozen=True, slots=True)
class Rename:
    """A rule of a `KeyMap`: a name on disk and the name of the same tensor in the network, or of its pieces.

    They are templates in which `{layer}` stands for a whole number and `{part}` for `weight` or `bias`.

    Pieces lie one after the other along the output axis, which is axis 0 of the network's layout, each as
    large as the network has it; so the query, key and value of all heads, or the halves of a gated layer.

    Attributes:
        hf: the name on disk.
        ours: the name in the network's `state_dict`; of a tensor that is several of the network's, all of
            them in the order on disk.
        transposed: whether a matrix lies on disk as (in, out), as GPT-2's do; a bias has one axis, and stays;
            pieces of a matrix then lie along axis 1 there.

    >>> Rename("h.{layer}.attn.c_proj.{part}", "layers.{layer}.attention.output.{part}", transposed=True).hf
    'h.{layer}.attn.c_proj.{part}'
    """

    hf: str
    ours: str | tuple[str, ...]
    _: KW_ONLY
    transposed: bool = False

    @property
    def pieces(self) -> tuple[str, ...]:
        """The names of the network, in the order on disk."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


@dataclass(frozen=True, slots=True)
class Shared:
    """A rule of a `KeyMap`: a tensor on disk that stands for several of the network's, which have names too.

    T5's and BART's `shared.weight` is the table of the encoder, of the decoder and of the output, and older
    files store it again under each of their own names. What holds, whether the network ties them or not:

    * loading: a tensor of the network with none of its own names on disk takes the shared one. Where the
      network ties several of them (all that it has, or two at least), own and shared ones must be equal. A
      network that holds one of several apart takes its own name, and what nobody takes counts as left out.
    * writing: the first of `ours` goes out under the shared name when the network ties it to another of
      them or has no other; all else goes out under its own name.

    Attributes:
        hf: the name on disk, without placeholders.
        ours: the names in the network's `state_dict`, the first being the one that the shared name is for.
        is_written: whether the shared name is written at all, or a second one that is only read.

    >>> Shared("shared.weight", ("encoder.embeddings.tokens.weight", "head.output.weight")).ours[0]
    'encoder.embeddings.tokens.weight'
    """

    hf: str
    ours: tuple[str, ...]
    is_written: bool = True


ID_BUFFERS: Mapping[str, Holds] = {
    "embeddings.position_ids": lambda at, _: torch.equal(at.flatten(), torch.arange(at.numel()).to(at)),
    "embeddings.token_type_ids": lambda at, _: not at.any(),
}
"""0, 1, 2, .. and 0, 0, 0, ..: written by `transformers` before 4.31, and by whoever writes all buffers."""


def taken_apart(stored: Tensor, sizes: list[int], *, transposed: bool) -> list[Tensor]:
    """The network's tensors in one of the disk: views along the output axis, as long as `sizes`."""
    # A matrix that lies as (in, out) becomes a view as (out, in); a bias has one axis.
    ours = stored.t() if transposed and stored.dim() == 2 else stored
    # A single piece may have any size, also none to split by.
    if len(sizes) == 1:
        return [ours]
    return list(torch.split(ours, sizes))


def shape_on_disk(shapes: list[tuple[int, ...]], *, transposed: bool) -> tuple[int, ...] | None:
    """The shape of the tensor that holds these, or None where they cannot lie in one."""
    first, *others = shapes
    # One tensor for one of the network's.
    if not others:
        return first[::-1] if transposed and len(first) == 2 else first
    # Several: they must be alike in all axes but the first.
    if not first or any(shape[1:] != first[1:] or len(shape) != len(first) for shape in others):
        return None
    fused = (sum(shape[0] for shape in shapes), *first[1:])
    return fused[::-1] if transposed and len(fused) == 2 else fused


@functools.lru_cache(maxsize=4096)
def pattern(template: str) -> re.Pattern[str]:
    """The names that a template stands for."""
    # A template is literal text with placeholders, in the syntax of `str.format`.
    pieces = string.Formatter().parse(template)
    return re.compile(
        "".join(
            re.escape(text) + (f"(?P<{name}>{_PLACEHOLDERS[name]})" if name is not None else "")
            for text, name, _, _ in pieces
        )
    )


@dataclass(frozen=True, slots=True)
class Match:
    """What a map says of a name on disk: its rule, the network's names in disk order, the prefix before."""

    prefix: str
    rule: Rename
    ours: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)  # told apart by identity, which `_match` hashes
class KeyMap:
    """How the tensors of a family are called on disk.

    Attributes:
        rules: the names, in both directions: `Rename` for one tensor, or one that is several of the
            network's, `Shared` for one that stands for several which the network may tie.
        prefixes: what some checkpoints of the family put before every name, such as `bert.`; a model with a
            head is written with the first of them.
        aliases: older spellings of the end of a name on disk, and the spelling that the rules use.
        heads: beginnings of the names on disk of what stands beside the prefixed model, such as `lm_head.`.
            A network may lack them, as what is left out.
        left_out: beginnings of other names on disk that a network may lack. A tensor that a rule maps to
            one of the network's is loaded all the same; the others are reported.
        buffers: constants that some checkpoints store, such as position numbers, and whether what is stored
            is what the network has. They are not loaded.

    `heads`, `left_out` and `buffers` may hold `{layer}`. No two rules may have the same name, on
    disk or in the network: the first would count.

    >>> from regard.checkpoints import KeyMap, Rename
    >>> keymap = KeyMap(
    ...     rules=(
    ...         Rename("layer.{layer}.attention.self.query.{part}", "layers.{layer}.attention.q.{part}"),
    ...         Rename("layer.{layer}.Wi.{part}", ("layers.{layer}.up.{part}", "layers.{layer}.gate.{part}")),
    ...     ),
    ...     prefixes=("bert.",),
    ...     heads=("cls.",),
    ... )
    >>> keymap.to_ours("bert.layer.3.attention.self.query.weight")
    ('layers.3.attention.q.weight',)
    >>> keymap.to_ours("layer.3.Wi.weight")
    ('layers.3.up.weight', 'layers.3.gate.weight')
    >>> keymap.to_hf("layers.3.attention.q.weight"), keymap.to_hf("layers.3.gate.weight")
    ('layer.3.attention.self.query.weight', 'layer.3.Wi.weight')
    >>> keymap.to_ours("cls.predictions.bias"), keymap.leaves_out("cls.predictions.bias")
    ((), True)
    """

    rules: tuple[Rename | Shared, ...]
    prefixes: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    heads: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    buffers: Mapping[str, Holds] = field(default_factory=dict)

    @property
    def shared(self) -> tuple[Shared, ...]:
        """The rules for tensors that stand for several."""
        return tuple(rule for rule in self.rules if isinstance(rule, Shared))

    @property
    def _own(self) -> tuple[Rename, ...]:
        return tuple(rule for rule in self.rules if not isinstance(rule, Shared))

    def untransposed(self) -> "KeyMap":
        """The same for files in which every matrix lies as in the network."""
        rules = tuple(
            replace(rule, transposed=False) if isinstance(rule, Rename) else rule for rule in self.rules
        )
        return replace(self, rules=rules)

    def match(self, name: str) -> Match | None:
        """The `Rename` that has a name on disk, or None."""
        return _match(self, name)

    def to_ours(self, name: str) -> tuple[str, ...]:
        """The network's names of a tensor on disk: none, one, or the pieces that it holds, in their order."""
        match = self.match(name)
        return () if match is None else match.ours

    def to_hf(self, name: str) -> str:
        """The name on disk, in the rules' own spelling, of a tensor of the network.

        Raises:
            CheckpointError: the map gives none.
        """
        rule = self.rule_of(name)
        if rule is None:
            raise CheckpointError(f"the key map has no name on disk for the network's {name!r}")
        return rule[0]

    def rule_of(self, name: str) -> tuple[str, Rename] | None:
        """The name on disk of a tensor of the network and the rule that has it, or None."""
        return _rule_of(self, name)

    def shared_by(self, name: str) -> Shared | None:
        """The rule of a tensor on disk that stands for several, or None."""
        # With and without each prefix: the shared tensor may be stored under any.
        bare = {name.removeprefix(prefix) for prefix in self._prefixes_of(name)}
        return next((rule for rule in self.shared if rule.hf in bare), None)

    def is_head(self, name: str) -> bool:
        """Whether a tensor of the disk stands beside the prefixed model."""
        # By beginnings: `match`, not `fullmatch`.
        return any(pattern(head).match(bare) for head in self.heads for bare in self._bare(name))

    def leaves_out(self, name: str) -> bool:
        """Whether a network of the family may lack this tensor of the disk."""
        return self.is_head(name) or any(
            pattern(start).match(bare) for start in self.left_out for bare in self._bare(name)
        )

    def buffer(self, name: str) -> Holds | None:
        """What a tensor on disk that is a stored constant has to be; None for any other tensor."""
        bare = list(self._bare(name))
        return next((it for hf, it in self.buffers.items() if any(map(pattern(hf).fullmatch, bare))), None)

    def with_prefix(self, name: str, prefix: str) -> str:
        """A name on disk behind a prefix, if it is of those that stand behind one."""
        return name if self.is_head(name) else prefix + name

    def _bare(self, name: str) -> Iterator[str]:
        return (name.removeprefix(prefix) for prefix in self._prefixes_of(name))

    # No prefix first: the name may already be the family's.
    def _prefixes_of(self, name: str) -> Iterator[str]:
        yield ""
        yield from (prefix for prefix in self.prefixes if name.startswith(prefix))

    def _spellings(self, bare: str) -> Iterator[str]:
        yield bare
        # Older spellings of the end, such as LayerNorm.gamma for LayerNorm.weight.
        yield from (bare.removesuffix(old) + new for old, new in self.aliases if bare.endswith(old))


@functools.lru_cache(maxsize=4096)  # a name is asked for some times while a checkpoint is read
def _match(keymap: KeyMap, name: str) -> Match | None:
    # As it stands, then behind a prefix; each also in today's spelling. The first rule that fits counts.
    for prefix in keymap._prefixes_of(name):
        for spelling in keymap._spellings(name.removeprefix(prefix)):
            for rule in keymap._own:
                if (match := pattern(rule.hf).fullmatch(spelling)) is not None:
                    values = match.groupdict()
                    # The values of the placeholders are put into each of the network's names.
                    return Match(prefix, rule, tuple(piece.format(**values) for piece in rule.pieces))
    return None


@functools.lru_cache(maxsize=4096)  # and while one is written
def _rule_of(keymap: KeyMap, name: str) -> tuple[str, Rename] | None:
    for rule in keymap._own:
        for piece in rule.pieces:
            if (match := pattern(piece).fullmatch(name)) is not None:
                # The other way round: from the network's name to the one on disk.
                return rule.hf.format(**match.groupdict()), rule
    return None
