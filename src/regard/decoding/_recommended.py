"""How a checkpoint's own files say that it should write."""

from typing import Any

from regard.core.errors import CheckpointError, InputError
from regard.decoding._beam import Beams, Power
from regard.decoding._choice import Choice, MostLikely, Sampling
from regard.decoding._rules import refused, said
from regard.models import Loaded


def recommended(model: Loaded, *, seed: int = 0) -> Choice | Beams:
    """The way of choosing that the files of a checkpoint name, with the defaults of `transformers`.

    Read are `do_sample` with `temperature`, `top_k` (50 unless given), `top_p`, `min_p`, `typical_p`,
    `epsilon_cutoff` and `eta_cutoff`, or else `num_beams` with `length_penalty` and `early_stopping` (false,
    the default, is the heuristic of `beam_search`; "never" is an exhaustive search). Nothing uses them
    unasked: regard writes greedily by default, whatever the checkpoint. Its rules (starts, ends, repetition,
    words that are forbidden) always hold, and the file that is read is the same: see `Rules.of`.

    Args:
        model: the checkpoint.
        seed: of sampling.

    Returns:
        `Sampling`, `Beams`, or `MostLikely` where nothing is said.

    Raises:
        CheckpointError: a file that cannot be read, a number out of range, or a way that is not offered:
            beams that are sampled or kept apart in groups, contrastive search, DoLa, top-h.

    Example:
        >>> from regard.models import load_checkpoint
        >>> recommended(load_checkpoint())
        MostLikely()
    """
    file, values = said(model)
    drawn, beams = values.get("do_sample", False), values.get("num_beams", 1)
    searched = beams != 1
    for name, asks in {
        "num_beams": searched and drawn,
        "num_beam_groups": searched and values.get("num_beam_groups", 1) != 1,
        "diversity_penalty": searched and values.get("diversity_penalty", 0) != 0,
        "renormalize_logits": searched and values.get("renormalize_logits", False),
        "dola_layers": not searched and "dola_layers" in values,
        "penalty_alpha": not (searched or drawn) and values.get("penalty_alpha", 0) != 0,
        "top_h": drawn and "top_h" in values,
    }.items():
        if asks:
            raise refused(file, name, values[name])
    try:
        if drawn:
            names = ("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
            given: dict[str, Any] = {"top_k": 50} | {name: values[name] for name in names if name in values}
            given["top_k"] = given["top_k"] or None  # 0 is none
            return Sampling(**given, seed=seed)
        if not searched:
            return MostLikely()
        early, power = values.get("early_stopping", False), Power(values.get("length_penalty", 1.0))
        if early not in (False, True, "never"):
            raise InputError(f'early_stopping must be true, false or "never"; got {early!r}.')
        return Beams(beams, counts=power, exhaustive=early == "never" or (not early and "heuristic"))
    except InputError as error:
        raise CheckpointError(f"{file}: {error}") from error
