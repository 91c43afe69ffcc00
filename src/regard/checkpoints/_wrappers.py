"""Names of tensors without what code around the network put into them."""

import re
from collections import Counter

from regard.checkpoints._keymap import KeyMap
from regard.checkpoints._tensors import TensorReader

# What DataParallel, torch.compile, FSDP and the like put before a module's names, wherever it stands.
_TORCH = re.compile(
    r"(?<![^.])(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\."
)


def unwrapped(reader: TensorReader, keymap: KeyMap) -> tuple[TensorReader, tuple[str, ...]]:
    """A checkpoint by the family's names, and what was taken off the stored ones for that.

    The names of torch's wrappers go wherever they stand; then one beginning that most names have, such as
    `model.` of a class with the network in a field, where more of them are the family's without it. Where two
    names would become one, nothing goes.
    """
    stored = {name: name for name in reader.names()}

    def known(names: dict[str, str]) -> int:
        fit = sum(keymap.match(name) is not None or keymap.shared_by(name) is not None for name in names)
        return fit if len(names) == len(stored) else -1

    if known(stored) == len(stored):
        return reader, ()
    bare = {_TORCH.sub("", name): name for name in stored}
    bare = bare if len(bare) == len(stored) else stored
    starts = Counter(name[: dot.end()] for name in bare for dot in re.finditer(r"\.", name))
    usual = ["", *sorted((start for start, count in starts.items() if 2 * count > len(bare)), key=len)]
    under = {start: {name.removeprefix(start): at for name, at in bare.items()} for start in usual}
    start = max(under, key=lambda each: known(under[each]))  # the shortest of equals
    taken = {piece for name in stored if bare is not stored for piece in _TORCH.findall(name)}
    return reader.under(under[start]), (*sorted(taken), *filter(None, [start]))
