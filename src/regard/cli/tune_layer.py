"""`regard tune-layer`: which layers of a model tell senses apart best."""

import json
from pathlib import Path

from regard.cli._input import load_model
from regard.cli._options import JSON, MODEL, argument, option
from regard.cli._output import Progress, check_outputs, console, print_json, print_path


def tune_layer(
    data: Path = argument("DATA", "Uses that people have judged; see above."),
    model: str = MODEL,
    output: Path | None = option("--output -o FILE", "Write the best settings, for --settings."),
    index: Path | None = option("--index INDEX", "Let this index use them; it must have no vectors yet."),
    as_json: bool = JSON,
) -> None:
    """Find the layers of a model that tell senses apart best, and calibrate what they say.

    DATA is NAME.data.txt of Word in Context, with NAME.gold.txt beside it; or JSON lines, either pairs,
    {"word": .., "first": USE, "second": USE, "same": true}, or senses, {"word": .., "sense": ..} with a use.
    A use is {"text": .., "start": .., "stop": ..} or {"words": [..], "index": ..}.

    The best layers have the least log loss on words that the fit has not seen; with senses, the most uses
    that have the sense of their five nearest.
    """
    check_outputs({"--output": output})
    from regard.concordance import read_judged, tune_layers, use_settings

    if index is not None:
        use_settings(index, None)
    judged = read_judged(data)
    loaded = load_model(model)
    with Progress("uses") as progress:
        tuning = tune_layers(loaded, judged, progress=progress.show)
    if output is not None:
        from regard.core.files import write_whole

        write_whole(output, json.dumps(tuning.settings, indent=2).encode())
    if index is not None:
        use_settings(index, tuning.settings)
    if as_json:
        print_json({"settings": tuning.settings, "scores": tuning.to_rows()})
        return
    console().print(tuning)
    if output is not None:
        print_path(output)
