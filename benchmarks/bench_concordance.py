"""What a concordance costs: the index, the first search and the next, all vectors, and other words.

    python benchmarks/bench_concordance.py [--data FILE.tsv] [--texts 57000] [--any] [--keep]

FILE.tsv has a sentence a line, after its document and a tab, as Brown has it here. Without it as many
sentences of 20 words are drawn, by Zipf's law, from the words of the model's vocabulary.

The word is the one whose number of uses is nearest to 500. *First* computes the vectors of its uses; *next*
finds them in the cache; both with the model loaded. *All* computes the vectors of every word of 4,000 texts;
its rival is the embedding engine, which makes a vector of every word of the same texts at the same layers and
keeps nothing; in turns, three times, by the clock and by the processor's time. With --any, all vectors of the
corpus are computed and indexed, and 50 uses of random words of five letters or more are searched among other
words: the time, and the share of the exact twenty nearest that is found.
"""

import argparse
import resource
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _harness import finish, machine

import regard
from regard.concordance import Concordance, build_index
from regard.embedding import Embedder, Mix, Request

USES, RATE_TEXTS, QUERIES, K = 500, 4_000, 50, 20


def sentences(data: Path | None, count: int, vocabulary: list[str]) -> list[str]:
    """The corpus."""
    if data is not None:
        return [line.partition("\t")[2] for line in data.read_text("utf-8").splitlines()[:count]]
    draw = np.random.default_rng(0)
    shares = 1 / np.arange(1, len(vocabulary) + 1)
    words = draw.permutation(vocabulary)[draw.choice(len(vocabulary), (count, 20), p=shares / shares.sum())]
    return [" ".join(row) + " ." for row in words.tolist()]


def timed(work: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def indexed(folder: Path, texts: list[str], model: Any) -> tuple[float, Concordance]:
    folder.mkdir()
    (folder / "corpus.txt").write_text("\n".join(texts) + "\n", "utf-8")
    seconds, _ = timed(lambda: build_index([folder / "corpus.txt"], folder / "index"))
    return seconds, Concordance(folder / "index", model)


def rates(folder: Path, texts: list[str], model: Any) -> dict[str, float]:
    """Words a second, of all vectors and of the engine alone."""
    found: dict[str, list[float]] = {}
    for turn in range(3):
        _, concordance = indexed(folder / f"rate{turn}", texts, model)
        layers = concordance.vectors.embed.layers
        words = concordance._store.one("SELECT sum(words) FROM doc")
        engine = Embedder(model.loaded, Request(level="word", layer=Mix(layers)))
        for name, work in (("all", concordance.vectors.all), ("engine", partial(engine.spans, texts))):
            before = time.process_time()
            seconds, _ = timed(work)
            found.setdefault(f"{name}_words_a_second", []).append(words / seconds)
            found.setdefault(f"{name}_words_a_cpu_second", []).append(words / (time.process_time() - before))
    return {name: statistics.median(each) for name, each in found.items()}


def other_words(concordance: Concordance) -> dict[str, float]:
    """The time of other words, and how many of the nearest are found."""
    seconds, _ = timed(concordance.embed_all)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    store, search = concordance._store, concordance._any
    keys = dict(store.rows("SELECT id, key FROM form WHERE is_word AND length(key) > 4"))
    uses, forms = (
        np.array(column) for column in zip(*store.rows("SELECT id, form FROM use ORDER BY id"), strict=True)
    )
    draw = np.random.default_rng(0)
    chosen = draw.choice(np.flatnonzero(np.isin(forms, list(keys))), QUERIES, replace=False)
    queries = np.stack(
        [
            np.frombuffer(
                store.one("SELECT v FROM vector WHERE use = ? AND size = 1", [int(use)]), np.float16
            )
            for use in uses[chosen]
        ]
    ).astype(np.float32)
    barred = [search.own(keys[int(forms[place])]) for place in chosen]
    best = [np.zeros((0, 2))] * QUERIES
    rows = store.db.execute(
        "SELECT v.use, u.form, v.v FROM vector v JOIN use u ON u.id = v.use WHERE v.size = 1"
    )
    while block := rows.fetchmany(20_000):
        of_use, of_form, blobs = zip(*block, strict=True)
        vectors = np.frombuffer(b"".join(blobs), np.float16).reshape(len(block), -1).astype(np.float32)
        cosines = queries @ vectors.T
        for number, own in enumerate(barred):
            row = np.where(np.isin(of_form, own), -2, cosines[number])
            top = np.argpartition(-row, min(K, len(row) - 1))[:K]
            both = np.concatenate([best[number], np.stack([np.array(of_use)[top], row[top]], axis=1)])
            best[number] = both[np.argsort(-both[:, 1], kind="stable")[:K]]
    search.nearest(queries[0], barred[0], K)
    times, recall = [], []
    for number, own in enumerate(barred):
        took, near = timed(lambda number=number, own=own: search.nearest(queries[number], own, K))
        times.append(took)
        recall.append(len(set(near.tolist()) & set(best[number][:, 0].astype(int).tolist())) / K)
    return {
        "embed_all_s": seconds,
        "peak_gib": peak,
        "rows": search._table.count_rows(),
        "any_word_ms": 1e3 * statistics.median(times),
        "any_word_p95_ms": 1e3 * float(np.quantile(times, 0.95)),
        "any_word_recall": float(np.mean(recall)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="FILE.tsv")
    parser.add_argument("--texts", type=int, default=57_000)
    parser.add_argument("--any", action="store_true", help="compute all vectors, and search other words")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    model = regard.load()
    tokenizer = model.loaded.require_tokenizer()
    known = (tokenizer.token_of(number) for number in range(tokenizer.vocab_size))
    texts = sentences(given.data, given.texts, [word for word in known if word.isalpha()])
    row: dict[str, Any] = {"corpus": given.data.name if given.data else "drawn", "texts": len(texts)}
    with tempfile.TemporaryDirectory() as name:
        row["index_s"], concordance = indexed(Path(name) / "corpus", texts, model)
        store = concordance._store
        row["words"] = store.one("SELECT sum(words) FROM doc")
        row["index_mb"] = sum(each.stat().st_size for each in store.folder.iterdir()) / 1e6
        near = "SELECT key FROM form WHERE is_word GROUP BY key ORDER BY abs(sum(n) - ?) LIMIT 1"
        word = store.one(near, [USES])
        assert concordance.calibration is not None  # the model is read, and its weights are hashed
        sentence = f"It is the {word} of them"

        def find() -> Any:
            return concordance.find(word, sentence=sentence)

        row["first_s"], lines = timed(find)
        row["uses"] = lines.total
        row["next_ms"] = 1e3 * statistics.median(timed(find)[0] for _ in range(9))
        row |= rates(Path(name), texts[:RATE_TEXTS], model)
        for per in ("second", "cpu_second"):
            row[f"all_over_engine_by_{per}"] = row[f"all_words_a_{per}"] / row[f"engine_words_a_{per}"]
        if given.any:
            row |= other_words(concordance)
    for what, value in row.items():
        print(f"{what:<24}{value:,.3f}" if isinstance(value, float) else f"{what:<24}{value}")
    finish("concordance", machine("numpy", *(["lancedb"] if given.any else [])), [row], keep=given.keep)


if __name__ == "__main__":
    main()
