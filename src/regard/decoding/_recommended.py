"""How a checkpoint's own files say that it should write."""

from pathlib import Path

from regard.core.errors import CheckpointError, InputError
from regard.decoding._beam import Beams, Power
from regard.decoding._choice import Choice, MostLikely, Sampling
from regard.decoding._rules import generation_files
from regard.models import Loaded


def recommended(model: Loaded, *, seed: int = 0) -> Choice | Beams:
    """The way of choosing that the files of a checkpoint name, `generation_config.json` before `config.json`.

    Read are `do_sample` with `temperature`, `top_k`, `top_p` and `min_p`, or else `num_beams` with
    `length_penalty` and `early_stopping` ("never" is an exhaustive search). Nothing uses them unasked:
    regard writes greedily by default, whatever the checkpoint. Its rules (starts, ends, repetition, words
    that are forbidden) always hold: see `Rules.of`.

    Args:
        model: the checkpoint.
        seed: of sampling.

    Returns:
        `Sampling`, `Beams`, or `MostLikely` where nothing is said.

    Raises:
        CheckpointError: a file that cannot be read, a number out of range, or beams that are sampled.

    Example:
        >>> from regard.models import load_checkpoint
        >>> recommended(load_checkpoint())
        MostLikely()
    """
    said: dict[str, object] = {}
    where = Path(model.source.folder)
    if model.network.foreign is None:
        for file, values in generation_files(where):
            said |= {name: value for name, value in values.items() if value is not None}
            where = file
    try:
        beams = said.get("num_beams", 1)
        if said.get("do_sample"):
            if beams != 1:
                raise InputError(f"beams that are drawn are not offered; it asks for {beams}.")
            names = ("temperature", "top_k", "top_p", "min_p")
            # 0 is how transformers says "none".
            given = {name: said[name] for name in names if name in said and said[name] != 0}
            return Sampling(**given, seed=seed)  # type: ignore[arg-type]
        if beams == 1:
            return MostLikely()
        power = Power(said.get("length_penalty", 1.0))  # type: ignore[arg-type]
        return Beams(beams, counts=power, exhaustive=said.get("early_stopping") == "never")  # type: ignore[arg-type]
    except InputError as error:
        raise CheckpointError(f"{where}: {error}") from error
