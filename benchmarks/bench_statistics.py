"""All statistics of all heads beside one fused forward pass, and beside the matrices that others keep.

    python benchmarks/bench_statistics.py [--tokens 1024 4096] [--repeats 3] [--matrices-to 1024] [--keep]

The regime: a model of GPT-2 small's shape (12 layers of 12 heads, random weights, causal), batch 1, float32,
all cores, a text whose words come again every seventy words. `statistics` is `trace.statistics()` of a trace
that is there; `forward` is the model's own pass without logits, `sdpa` that of transformers. `eager` is
transformers' eager pass with output_attentions, and the same statistics from its matrices, where these fit
into memory.

The answers are checked first: on some rows against `attention_weights` in float64, and every mean of every
head against eager's. The last line is the result as JSON.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _harness import PARAGRAPH, finish, machine, seconds, text_of
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import GPT2Config, GPT2Model

import regard
from regard.core import attention_weights
from regard.tracing import Statistics, Trace

LONGEST = 32768
EXACT = 1e-5


def save(folder: Path) -> None:
    """A folder with GPT-2 small's layers, and the words of the paragraph as its vocabulary."""
    torch.manual_seed(0)
    words = sorted({word for word, _ in pre_tokenizers.Whitespace().pre_tokenize_str(PARAGRAPH)})
    vocabulary = {word: number for number, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=LONGEST,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.06,
    )
    GPT2Model(config).save_pretrained(folder)


def check(trace: Trace, found: Statistics) -> None:
    """Some rows of every layer in float64."""
    queries = torch.tensor([0, 1, len(trace.tokens) // 2, len(trace.tokens) - 1])
    keys = torch.arange(len(trace.tokens))
    for layer, each in enumerate(trace.attention()):
        weights = attention_weights(
            each.inputs.changed(q=each.inputs.q.double(), k=each.inputs.k.double()), queries
        )
        distance = (queries[:, None] - keys).abs().double()
        mean = (weights * distance).sum(3)
        wanted = {
            "entropy": torch.special.entr(weights).sum(3),
            "largest": weights.amax(3),
            "distance": mean,
            "spread": (weights * (distance - mean[..., None]) ** 2).sum(3).sqrt(),
            "to_self": weights.gather(3, queries[:, None].expand(*weights.shape[:3], 1))[..., 0],
        }
        for name, values in wanted.items():
            apart = (getattr(found, name)[layer][:, queries] - values[0]).abs().max() / values.max().clamp(
                min=1
            )
            assert apart < (1e-3 if name == "spread" else EXACT), (
                f"{name} of layer {layer} is {apart:.2g} apart"
            )


def from_matrices(attentions: tuple[Tensor, ...], trace: Trace) -> dict[str, Tensor]:
    """The same statistics, written as everybody would: means (layers, heads) of each."""
    encoding = trace.encoding
    word = torch.tensor([-1 if token.word is None else token.word for token in encoding.tokens])
    names = [encoding.words[at].text.casefold() for at in word.tolist()]
    number = {name: index for index, name in enumerate(dict.fromkeys(names))}
    spelled = torch.tensor([number[name] if name.isalpha() else -1 for name in names])
    again = (spelled[:, None] == spelled) & (word[:, None] != word) & (spelled >= 0)
    marks = torch.tensor([not name.isalpha() for name in names])
    at = torch.arange(len(word))
    distance = (at[:, None] - at).abs().float()
    told: dict[str, list[Tensor]] = {}
    for (weights,) in attentions:
        mean = (weights * distance).sum(2)
        rows = {
            "entropy": torch.special.entr(weights).sum(2),
            "largest": weights.max(2).values,
            "distance": mean,
            "spread": ((weights * distance**2).sum(2) - mean**2).clamp(min=0).sqrt(),
            "to_self": weights.diagonal(dim1=1, dim2=2),
            "to_previous": weights.diagonal(-1, dim1=1, dim2=2),
            "to_next": weights.diagonal(1, dim1=1, dim2=2),
            "to_first": weights[:, :, 0],
            "to_punctuation": weights[:, :, marks].sum(2),
            "to_repeated_word": (weights * again).sum(2)[:, again.any(1)],
            "received": weights.sum(1),
        }
        for name, values in rows.items():
            told.setdefault(name, []).append(values.mean(1))
    return {name: torch.stack(values) for name, values in told.items()}


def measure(model: Any, folder: Path, tokens: int, repeats: int, *, matrices: bool) -> dict[str, Any]:
    """One length's row."""
    text = text_of(tokens, lambda text: len(model.tokenizer.encode(text).tokens))
    trace = model.trace(text, keep="qk")
    ids = torch.tensor([trace.token_ids])
    found = trace.statistics()
    check(trace, found)
    sdpa: Any = GPT2Model.from_pretrained(folder, attn_implementation="sdpa")
    works: dict[str, Callable[[], object]] = {
        "statistics": trace.statistics,
        "forward": lambda: model.network(ids, logits=False),
        "sdpa": lambda: sdpa(ids, use_cache=False),
    }
    if matrices:
        eager: Any = GPT2Model.from_pretrained(folder, attn_implementation="eager")

        def by_matrices() -> dict[str, Tensor]:
            return from_matrices(eager(ids, output_attentions=True, use_cache=False).attentions, trace)

        works["eager"] = by_matrices
        for name, theirs in by_matrices().items():
            apart = (found.mean(name) - theirs).abs().max() / theirs.max().clamp(min=1)
            assert apart < 1e-3, f"the means of {name} are {apart:.2g} apart"
    took = seconds(works, repeats)
    row: dict[str, Any] = {"tokens": tokens, "statistics": len(found.names)}
    row |= {f"{name}_s": round(value, 4) for name, value in took.items()}
    row |= {
        f"over_{name}": round(took["statistics"] / took[name], 3) for name in took if name != "statistics"
    }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--matrices-to", type=int, default=1024, help="the longest text that eager is given")
    parser.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = parser.parse_args()
    rows = []
    print(f"{'tokens':>6} {'statistics':>11} {'forward':>9} {'sdpa':>9} {'eager':>9}   statistics over each")
    with tempfile.TemporaryDirectory() as temporary, torch.inference_mode():
        folder = Path(temporary)
        save(folder)
        model = regard.load(folder)
        for tokens in options.tokens:
            row = measure(model, folder, tokens, options.repeats, matrices=tokens <= options.matrices_to)
            rows.append(row)
            times = " ".join(
                f"{row[f'{name}_s']:8.2f}s" if f"{name}_s" in row else f"{'-':>9}"
                for name in ("forward", "sdpa", "eager")
            )
            ratios = ", ".join(f"{row[key]:.2f}" for key in row if key.startswith("over_"))
            print(f"{tokens:>6} {row['statistics_s']:10.2f}s {times}   {ratios}", flush=True)
    finish("statistics", machine("transformers"), rows, keep=options.keep)


if __name__ == "__main__":
    main()
