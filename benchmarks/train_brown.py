"""A small masked language model of the Brown corpus: does it tell the senses of *line* apart?

    python benchmarks/train_brown.py --data FOLDER --senses FOLDER [--steps 1500] [--film FILE] [--keep]

--data holds brown.tsv (a sentence each line after the name of its document and a tab; 1.2 million words and
punctuation marks), --senses line.pos.gz of Senseval 2: 4,146 uses of *line* as a noun with their senses.

`regard train mlm` learns a WordPiece of 8,000 entries and a network from Brown alone, every document a text
that is cut into rows. Of 750 uses of *line*, drawn by the seed, each with 40 words before and after,
`regard.embedding` gives the word's vector; a use counts where the nearest other one by cosine has its sense.
Where several are equally near, as static vectors are, the share of them that have it counts. Layer 0 is the
static embedding, step 0 the network before its first step. With --film a sentence with two senses of the
word is traced on the way, and becomes a page.
"""

import argparse
import gzip
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from _harness import finish, machine

from regard.embedding import Embedder, Request
from regard.models import load_checkpoint, new_network, write_checkpoint
from regard.training import film, read_settings, train

USES, AROUND = 750, 40
SENTENCE = "they stood in line while she drew a line"
CONFIGURATION: dict[str, Any] = {
    "family": "modernbert",
    "model": {"d_model": 128, "num_layers": 3, "num_heads": 4, "d_ff": 256},
    "batch": {"rows": 32, "length": 128},
    "optimiser": {"name": "muon", "lr": 5e-3, "schedule": "linear", "weight_decay": 0.05},
    "task": {"masked": 0.2},
}


def documents(file: Path) -> list[str]:
    """Each document of Brown as one line, with the quotation marks of everybody else."""
    found: dict[str, list[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        name, _, sentence = line.partition("\t")
        found.setdefault(name, []).append(sentence.replace("``", '"').replace("''", '"'))
    return [" ".join(sentences) for sentences in found.values()]


def uses(file: Path, seed: int) -> list[tuple[str, int, str]]:
    """Texts around the word, where it begins in them, and its sense."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        instances = list(ElementTree.fromstring(stream.read()).iter("instance"))
    found = []
    for instance in random.Random(seed).sample(instances, USES):
        answer, context = instance.find("answer"), instance.find("context")
        assert answer is not None
        assert context is not None
        heads = {id(word) for head in context.iter("head") for word in head.iter("wf")}
        words = list(context.iter("wf"))
        place = next(number for number, word in enumerate(words) if id(word) in heads)
        first = max(0, place - AROUND)
        texts = [(word.text or "").strip() for word in words[first : place + AROUND + 1]]
        start = len(" ".join([*texts[: place - first], ""]))
        found.append((" ".join(texts), start, answer.attrib["senseid"]))
    return found


def accuracy(model: str | Path, sample: Sequence[tuple[str, int, str]]) -> list[float]:
    """By layer, the share of uses whose nearest other one has their sense."""
    loaded = load_checkpoint(model)
    layers = list(range(loaded.network.depth("encoder") + 1))
    found = Embedder(loaded, Request(level="word", layer=layers)).spans([text for text, _, _ in sample])
    starts = np.array([start for _, start, _ in sample])[found.rows]
    here = (found.spans[:, 0] <= starts) & (starts < found.spans[:, 1])
    assert found.rows[here].tolist() == list(range(len(sample))), "the word is in every text, once"
    senses = np.array([sense for _, _, sense in sample])
    return [_nearest(vectors, senses) for vectors in np.moveaxis(found.vectors[here], 1, 0)]


def _nearest(vectors: np.ndarray[Any, Any], senses: np.ndarray[Any, Any]) -> float:
    unit = vectors.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2.0)
    is_nearest = cosines >= cosines.max(axis=1, keepdims=True) - 1e-9
    right = is_nearest & (senses[:, None] == senses[None])
    return float((right.sum(axis=1) / is_nearest.sum(axis=1)).mean())


class Probe:
    """Scores the model that a run has written, after every score of its own.

    Attributes:
        seconds: of the processor, for training and the run's own scores.
    """

    def __init__(self, folder: Path, sample: Sequence[tuple[str, int, str]]) -> None:
        self.folder, self.sample = folder, sample
        self.curve: list[dict[str, Any]] = []
        self.seconds, self._scored, self._began = 0.0, False, time.process_time()

    def __call__(self, report: Mapping[str, Any]) -> None:
        self.seconds += time.process_time() - self._began
        if self._scored:  # the model is written after the score is told
            self.look()
        self._scored = "valid_loss" in report
        self._began = time.process_time()

    def look(self) -> None:
        """Score the best one so far, and say so."""
        model = self.folder / "model"
        scores = json.loads((model / "scores.json").read_text())
        row = {
            "step": scores["step"],
            "processor_seconds": round(self.seconds),
            "loss": round(scores["loss"], 4),
            "layers": [round(each, 3) for each in accuracy(model, self.sample)],
        }
        self.curve.append(row)
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with brown.tsv")
    parser.add_argument("--senses", type=Path, required=True, help="the folder with line.pos.gz")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--every", type=int, default=250, help="steps between two scores")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting")
    parser.add_argument("--film", type=Path, help="the page to write")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    sample = uses(options.senses / "line.pos.gz", options.seed)
    majority = Counter(sense for _, _, sense in sample).most_common(1)[0][1] / len(sample)
    print(f"{len(sample)} uses; the most frequent sense has {majority:.3f} of them", flush=True)
    with tempfile.TemporaryDirectory() as above:
        text, folder = Path(above, "brown.txt"), Path(above, "run")
        text.write_text(
            "".join(f"{each}\n" for each in documents(options.data / "brown.tsv")), encoding="utf-8"
        )
        configuration = Path(above, "configuration.json")
        configuration.write_text(json.dumps(CONFIGURATION))
        settings = read_settings(
            "mlm",
            file=configuration,
            changes=options.set,
            data={"train": [str(text)], "valid_share": 0.02},
            tokenizer={"kind": "wordpiece", "lowercase": True},
            steps=options.steps,
            evaluate_every=options.every,
            save_every=options.steps,
            seed=options.seed,
            watch=[SENTENCE] if options.film else None,
        )
        probe = Probe(folder, sample)
        result = train(settings, folder, on_report=probe)
        probe.look()
        if options.film:
            film(folder, max_mb=0.33).write(options.film)
        trained = load_checkpoint(result.model)
        config: Any = trained.network.config
        before = Path(above, "before")
        write_checkpoint(
            new_network(config, seed=options.seed), before, tokenizer=trained.require_tokenizer()
        )
        untrained = [round(each, 3) for each in accuracy(before, sample)]
    print(f"step 0: {untrained}")
    row = {
        "uses": len(sample),
        "most_frequent_sense": round(majority, 3),
        "untrained": untrained,
        "trained": probe.curve[-1],
        "curve": probe.curve,
    }
    facts = machine() | {"seed": str(options.seed), "steps": str(options.steps)}
    finish("train_brown", facts, [row], keep=options.keep)


if __name__ == "__main__":
    main()
