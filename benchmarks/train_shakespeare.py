"""Tiny Shakespeare by character: regard's training beside a plain PyTorch loop of the same configuration.

    python benchmarks/train_shakespeare.py --data FOLDER [--steps 2000] [--biases] [--recipe] [--keep]

FOLDER holds input.txt, the 1,115,394 characters of github.com/karpathy/char-rnn (data/tinyshakespeare).

The configuration is nanoGPT's for a CPU: 4 layers of 4 heads, d_model 128, 64 characters of context, 12 rows
a step, AdamW with betas .9 and .99 and weight decay .1, learning rate 1e-3 to 1e-4 by a cosine after 100
steps of warm-up, gradients cut at 1, no dropout. The first nine tenths are learned from. The loop is written
below as one would write it: one matrix for q, k and v, `scaled_dot_product_attention`, GELU, tied tables,
fused AdamW. Its layers have no biases, as those of nanoGPT; GPT-2's have, and with `--biases` so have the
loop's.

Both train in this process with the same number of threads, a piece of 50 steps each in turn, so that a slow
spell of the machine falls on both; batches, clipping and the journal are counted, scores are not. At the
end both are scored on all of the last tenth. `--recipe` then trains, by regard alone, a Llama of as many
parameters on as many characters by Muon.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from _harness import finish, machine
from torch import Tensor, nn
from torch.nn import functional

from regard.training import read_journal, read_settings, train

WIDTH, LAYERS, HEADS, CONTEXT, ROWS, WARMUP, PEAK, FLOOR = 128, 4, 4, 64, 12, 100, 1e-3, 1e-4
PIECE = 50
SIZES = {"d_model": WIDTH, "num_layers": LAYERS, "num_heads": HEADS}
CONFIGURATION = {
    "family": "gpt2",
    "model": SIZES
    | {
        "d_ff": 4 * WIDTH,
        "activation": "gelu",
        "dropout_p": 0.0,
        "embedding_dropout_p": 0.0,
        "attention_dropout_p": 0.0,
    },
    "optimiser": {
        "lr": PEAK,
        "floor": FLOOR / PEAK,
        "warmup": WARMUP,
        "schedule": "cosine",
        "betas": [0.9, 0.99],
        "weight_decay": 0.1,
    },
}
RECIPE = {
    "family": "llama",
    "model": SIZES | {"d_ff": 344, "tie_word_embeddings": True},
    "optimiser": {
        "name": "muon",
        "lr": 1e-2,
        "warmup": WARMUP,
        "schedule": "cosine",
        "betas": [0.9, 0.98],
        "weight_decay": 0.1,
    },
}


class Layer(nn.Module):
    """A layer of GPT-2."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.norm, self.second = nn.LayerNorm(WIDTH, bias=bias), nn.LayerNorm(WIDTH, bias=bias)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=bias)
        self.output = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.wide, self.narrow = (
            nn.Linear(WIDTH, 4 * WIDTH, bias=bias),
            nn.Linear(4 * WIDTH, WIDTH, bias=bias),
        )

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        parts = self.qkv(self.norm(x)).split(WIDTH, dim=2)
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in parts)
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(context.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.narrow(functional.gelu(self.wide(self.second(x))))


class Plain(nn.Module):
    """The rival's network."""

    def __init__(self, characters: int, bias: bool) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.Sequential(*(Layer(bias) for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, bias=bias)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                deep = name.endswith(("output.weight", "narrow.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS) if deep else 0.02)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.norm(self.layers(self.table(ids) + self.places.weight[: ids.shape[1]]))
        logits = functional.linear(x, self.table.weight)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Rival:
    """The plain loop."""

    def __init__(self, text: str, steps: int, seed: int, bias: bool) -> None:
        torch.manual_seed(seed)
        number = {character: place for place, character in enumerate(sorted(set(text)))}
        ids = torch.tensor([number[character] for character in text])
        edge = len(ids) - len(ids) // 10
        self.train, self.valid = ids[:edge], ids[edge:]
        self.network, self.steps, self.step = Plain(len(number), bias), steps, 0
        self.draw = torch.Generator().manual_seed(seed)
        matrices = [each for each in self.network.parameters() if each.ndim == 2]
        vectors = [each for each in self.network.parameters() if each.ndim == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.99), fused=True)

    def run(self, steps: int) -> None:
        """So many steps."""
        for _ in range(steps):
            self.step += 1
            through = min(1.0, max(0.0, (self.step - WARMUP) / max(1, self.steps - WARMUP)))
            rate = FLOOR + (PEAK - FLOOR) * 0.5 * (1.0 + math.cos(math.pi * through))
            for group in self.optimiser.param_groups:
                group["lr"] = rate if self.step >= WARMUP else PEAK * self.step / WARMUP
            starts = torch.randint(len(self.train) - CONTEXT, (ROWS,), generator=self.draw).tolist()
            ids = torch.stack([self.train[start : start + CONTEXT] for start in starts])
            targets = torch.stack([self.train[start + 1 : start + CONTEXT + 1] for start in starts])
            loss = self.network(ids, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            loss.item()  # which everybody prints

    @torch.no_grad()
    def score(self) -> float:
        """The loss over all of the validation part."""
        count = (len(self.valid) - 1) // CONTEXT * CONTEXT
        ids, targets = self.valid[:count].view(-1, CONTEXT), self.valid[1 : count + 1].view(-1, CONTEXT)
        parts = zip(ids.split(64), targets.split(64), strict=True)
        return sum(float(self.network(*part)) * len(part[0]) for part in parts) / len(ids)


class InTurns:
    """Lets the rival run a piece whenever regard has run one, and keeps what each took."""

    def __init__(self, rival: Rival) -> None:
        self.rival = rival
        self.took: dict[str, list[tuple[float, float]]] = {"regard": [], "plain": []}
        self.spent, self.began = [0.0, 0.0], _now()

    def __call__(self, report: Mapping[str, Any]) -> None:
        if "loss" in report:
            self.spent = [a + b - c for a, b, c in zip(self.spent, _now(), self.began, strict=True)]
            if report["step"] % PIECE == 0:
                began = _now()
                self.rival.run(PIECE)
                ended = _now()
                self.took["plain"].append((ended[0] - began[0], ended[1] - began[1]))
                self.took["regard"].append((self.spent[0], self.spent[1]))
                self.spent = [0.0, 0.0]
                print(
                    f"step {report['step']}: regard over plain, by the processor: {self.ratio(1):.3f}",
                    flush=True,
                )
        self.began = _now()

    def ratio(self, clock: int) -> float:
        """By how much regard is faster: the median over pieces, the first of each left out."""
        pairs = list(zip(self.took["plain"], self.took["regard"], strict=True))
        return statistics.median(plain[clock] / ours[clock] for plain, ours in pairs[1:] or pairs)

    def rate(self, name: str) -> float:
        """Characters a second of the processor."""
        return PIECE * ROWS * CONTEXT / statistics.median(took[1] for took in self.took[name])


def _now() -> list[float]:
    return [time.perf_counter(), time.process_time()]


def settings(text: Path, steps: int, seed: int, chosen: Mapping[str, Any]) -> Any:
    """Those of a run of regard."""
    return read_settings(
        "clm",
        data={"train": [str(text)], "valid_share": 0.1},
        tokenizer={"kind": "characters"},
        batch={"rows": ROWS, "length": CONTEXT},
        steps=steps,
        seed=seed,
        evaluate_every=250,
        save_every=steps,
        **chosen,
    )


def curve(folder: Path) -> list[list[float]]:
    """Step and validation loss, from the journal."""
    return [
        [each["step"], round(each["valid_loss"], 4)] for each in read_journal(folder) if "valid_loss" in each
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with input.txt")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--biases", action="store_true", help="the plain loop's layers have biases too")
    parser.add_argument("--recipe", action="store_true", help="train the recipe too")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    text = options.data / "input.txt"
    rival = Rival(text.read_text(encoding="utf-8"), options.steps, options.seed, options.biases)
    turns = InTurns(rival)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as above:
        folder = Path(above) / "run"
        result = train(settings(text, options.steps, options.seed, CONFIGURATION), folder, on_report=turns)
        rows.append(
            {"what": "plain", "characters_s": round(turns.rate("plain")), "loss": round(rival.score(), 4)}
        )
        rows.append(
            {
                "what": "regard",
                "characters_s": round(turns.rate("regard")),
                "loss": round(result.scores["loss"], 4),
                "faster": round(turns.ratio(1), 3),
                "faster_by_the_clock": round(turns.ratio(0), 3),
                "curve": curve(folder),
            }
        )
        if options.recipe:
            folder = Path(above) / "recipe"
            result = train(settings(text, options.steps, options.seed, RECIPE), folder)
            rows.append({"what": "recipe", "loss": round(result.scores["loss"], 4), "curve": curve(folder)})
    for row in rows:
        print({name: value for name, value in row.items() if name != "curve"})
    chosen = {name: str(getattr(options, name)) for name in ("seed", "steps", "biases")}
    finish("train_shakespeare", machine() | chosen, rows, keep=options.keep)


if __name__ == "__main__":
    main()
