"""Multi30k, English to German, by the Transformer of the paper with 4 + 4 layers of d_model 128.

    python benchmarks/train_multi30k.py --data FOLDER --run FOLDER [--score] [--keep]

--data holds train, val and test_2016_flickr, each as .lc.norm.tok.en and .de: in lowercase,
words and punctuation between blanks.
`regard train seq2seq` learns from the 29,000 pairs in the folder --run: typed again, it goes on where
it was stopped, and where it is finished it only scores. --score trains no further, and scores the best model
that there is.

The model writes with 5 beams. How much the length counts is chosen by BLEU on val; then test 2016 is written
once. BLEU is sacreBLEU's, of the texts as they are (tokenize="none").
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from _harness import finish, machine
from sacrebleu.metrics import BLEU

from regard.decoding import Beams, Power, decode_texts
from regard.models import Loaded, load_checkpoint
from regard.training import read_journal, read_settings, train

ENDING = ".lc.norm.tok"
SIDES = {"": "en", "_target": "de"}
BEAMS, POWERS = 5, (0.6, 1.0, 1.4)
SETTINGS: dict[str, Any] = {
    "steps": 14_200,
    "evaluate_every": 700,
    "save_every": 200,
    "keep": 10,
    "average": 5,
    "best": "loss",
    "seed": 1,
    "tokenizer": {"kind": "bpe", "size": 10_000},
    "model": {"d_model": 128, "num_layers": 4, "num_heads": 4, "d_ff": 256, "dropout_p": 0.1},
    "task": {"smoothing": 0.1, "bleu_tokenize": "none", "bleu_texts": 100},
    "batch": {"tokens": 1536, "length": 100},
    "optimiser": {"name": "muon", "lr": 2e-3, "muon_lr": 3e-3, "schedule": "stable", "warmup": 100},
}


def pairs(folder: Path, name: str) -> tuple[list[str], list[str]]:
    """The lines of both sides."""
    english, german = (
        (folder / f"{name}{ENDING}.{language}").read_text(encoding="utf-8").splitlines()
        for language in ("en", "de")
    )
    return english, german


def bleu(model: Loaded, english: list[str], german: list[str], power: float) -> tuple[float, str]:
    """The score of what the model writes, and its signature."""
    choice = Beams(BEAMS, counts=Power(power))
    written = decode_texts(model, model.require_tokenizer(), english, choice=choice)
    metric = BLEU(tokenize="none", force=True)  # which has no remark on tokenised texts
    score = metric.corpus_score([ways[0].text for ways in written], [german]).score
    return score, str(metric.get_signature())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the texts")
    parser.add_argument("--run", type=Path, required=True, help="the folder of the run, new or to go on with")
    parser.add_argument("--score", action="store_true", help="score the best model so far")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    train_on, valid = (
        {f"{side}{of}": [str(options.data / f"{name}{ENDING}.{language}")] for of, language in SIDES.items()}
        for side, name in (("train", "train"), ("valid", "val"))
    )
    if not options.score:
        settings = read_settings("seq2seq", data=train_on | valid, **SETTINGS)
        train(settings, options.run, on_message=lambda told: print(told, flush=True))
    folder = options.run / "model"
    model, scores = load_checkpoint(folder.resolve()), json.loads((folder / "scores.json").read_text())
    steps = [each["step"] for each in read_journal(options.run) if "loss" in each]
    curve = [
        [each["step"], round(each["valid_loss"], 4), round(each["valid_bleu"], 2)]
        for each in read_journal(options.run)
        if "valid_loss" in each
    ]
    print(f"after {steps[-1]:,} of {SETTINGS['steps']:,} steps; the best is of step {scores['step']:,}")
    began = time.perf_counter()
    on_val = {}
    for power in POWERS:
        on_val[power], _ = bleu(model, *pairs(options.data, "val"), power)
        print(f"length to the power of {power}: BLEU on val {on_val[power]:.2f}", flush=True)
    power = max(on_val, key=lambda each: on_val[each])
    found, signature = bleu(model, *pairs(options.data, "test_2016_flickr"), power)
    print(f"BLEU on test 2016 {found:.2f}, {signature}; {time.perf_counter() - began:.0f} s of writing")
    row = {
        "parameters": sum(each.numel() for each in model.network.parameters()),
        "steps": steps[-1],
        "of": SETTINGS["steps"],
        "step": scores["step"],
        "bleu_val": {str(each): round(score, 2) for each, score in on_val.items()},
        "power": power,
        "bleu_test": round(found, 2),
        "signature": signature,
        "curve": curve,
    }
    facts = machine("sacrebleu") | {"seed": str(SETTINGS["seed"])}
    finish("train_multi30k", facts, [row], keep=options.keep)


if __name__ == "__main__":
    main()
