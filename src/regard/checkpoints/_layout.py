"""Which files of a folder make it a model, under the names that the checkpoints of the hub use."""

from pathlib import Path

from regard.checkpoints._json import json_kind, read_object
from regard.core.errors import CheckpointError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def read_index(folder: Path) -> dict[str, str]:
    """The shard of every tensor, as the index of a sharded checkpoint lists them.

    A shard is a file in the same folder. An index that names anything else is refused, so that a checkpoint
    from a stranger cannot make regard open a file elsewhere.

    Raises:
        CheckpointError: the index is missing, not what it should be, or leaves the folder.
    """
    file = folder / INDEX
    shards = read_object(file).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        got = "nothing" if not shards else json_kind(shards)
        raise CheckpointError(f"{file}: wanted an object 'weight_map' from tensors to shards, got {got}")
    for name, shard in shards.items():
        if not isinstance(shard, str) or not _is_plain_shard_name(shard):
            raise CheckpointError(
                f"{file}: the shard of {name!r} must be the name of a .safetensors file in the same folder, "
                f"got {shard!r}"
            )
    return shards


def _is_plain_shard_name(shard: str) -> bool:
    forbidden = {"/", "\\", ":", "\0"}
    return shard.endswith(".safetensors") and not shard.startswith(".") and not forbidden & set(shard)


def holds_model(folder: Path) -> bool:
    """Whether a folder has a config and all of its weight files; none of them is opened but the index."""
    if not (folder / CONFIG).is_file():
        return False
    if (folder / WEIGHTS).is_file():
        return True
    try:
        return all((folder / shard).is_file() for shard in set(read_index(folder).values()))
    except CheckpointError:
        return False
