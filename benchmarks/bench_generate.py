"""Decoding beside transformers and CTranslate2, token by token, in one run.

    python benchmarks/bench_generate.py [--parts gpt2 translate ...] [--threads 2]

gpt2        the shape of GPT-2 small with random weights, the same in both: --new tokens, greedy, after
            prompts of 32, one and eight at a time, in float32 and bfloat16 (regard also in int8). Beside it
            what memory allows: the bytes of all weights, read once a token as fast as `sum` reads.
translate   an encoder-decoder of the original base shape (d_model 512, 6 + 6 layers, 37,000 tokens) with
            random weights: --new tokens after sources of 24, greedy and beam 4, in float32. CTranslate2 is
            skipped where it is not installed.
first       the first token of a prompt of 512, over a forward pass with torch's fused attention.
memory      what is kept of a text after --new tokens, over the keys' and values' arithmetic.
loss        what bfloat16 and int8 lose: of the tokens of a text that float32 wrote, how many each would have
            written after the same ones before, and how far its log-probabilities are apart.
speculate   GPT-2 small in float32 with guesses: looked up in the text so far, and drafted by its own weights
            in int8. What random weights write soon repeats itself, which is a good case for looking up;
            --copier names a model that was trained to say lists twice (scripts/examples_models.py).

In gpt2, translate and speculate the texts are compared before anything is timed. All sides run in turns,
--repeats times. With one thread times are of the processor, which a busy machine disturbs less; with several,
of the clock. The last line is the result as JSON; --keep writes it into benchmarks/results/.
"""

import argparse
import copy
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _gpt2 import VOCAB
from _harness import finish, machine
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel

from regard.checkpoints import load_into, read_tensors, write_tensors
from regard.decoding import Draft, Lookup, Rules, Speculation, beam_search, greedy, prepared, speculate
from regard.models import Network, load_checkpoint
from regard.models.families.gpt2 import GPT2_KEYS, Gpt2Config, build

PROMPT, SOURCE = 32, 24
LIST = "moon table wolf paper river stone moon"
WORDS = 37_000  # the original's vocabulary for English and German


def main() -> None:
    parts = {each.__name__: each for each in (gpt2, translate, first, memory, loss, speculation)}
    parts["speculate"] = parts.pop("speculation")
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--new", type=int, default=64, help="tokens to write")
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--copier", help="the folder of a model for the part speculate")
    arguments.add_argument("--keep", action="store_true", help="keep the result in benchmarks/results/")
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    rows = [row for part in options.parts for row in parts[part](options)]
    finish("generate", machine("transformers"), rows, keep=options.keep)


def gpt2(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Greedy continuation beside transformers'."""
    theirs, ours = _pair()
    networks = {each: prepared(ours, each) for each in ("float32", "bfloat16", "int8")}
    rivals = {"float32": theirs, "bfloat16": copy.deepcopy(theirs).to(torch.bfloat16)}
    parameters = sum(each.numel() for each in ours.parameters())
    rows = []
    for batch in (1, 8):
        ids = _random(VOCAB, batch, PROMPT)
        rules = Rules(max_length=options.new)
        expected = _continued(theirs, ids, options.new).tolist()
        written = [list(each.token_ids) for each in greedy(networks["float32"], ids.tolist(), rules=rules)]
        assert written == expected, "the tokens are not those of transformers"
        works: dict[str, Callable[[], object]] = {
            **{
                f"regard {name}": partial(greedy, network, ids.tolist(), rules=rules)
                for name, network in networks.items()
            },
            **{
                f"transformers {name}": partial(_continued, model, ids, options.new)
                for name, model in rivals.items()
            },
        }
        times, reading = _in_turns(works, options)
        rates = {name: batch * options.new / each for name, each in times.items()}
        for name in rates:
            precision = name.split()[1]
            size = {"float32": 4, "bfloat16": 2, "int8": 1}[precision]
            rival = rates.get(f"transformers {precision}")
            rows.append(
                {
                    "part": "gpt2",
                    "batch": batch,
                    "who": name,
                    "tokens_per_s": round(rates[name], 1),
                    "over_transformers": None if rival is None else round(rates[name] / rival, 2),
                    "of_memory_limit": round(rates[name] / batch * parameters * size / reading, 2),
                }
            )
            _tell(rows[-1])
    return rows


def translate(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Translation beside CTranslate2 and transformers."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours, rival = _translators(Path(folder), options.threads)
        network = ours.network.eval()
        for batch, beams in ((1, 1), (1, 4), (16, 1), (16, 4)):
            ids = _random(WORDS - 2, batch, SOURCE)
            ids[:, -1] = 0  # the end
            works = {
                "regard": _by_regard(network, ids, beams, options.new),
                "transformers": _by_transformers(theirs, ids, beams, options.new),
            }
            if rival is not None:
                works["ctranslate2"] = _by_ctranslate2(rival, ids, beams, options.new)
            texts = {name: work() for name, work in works.items()}
            same = {
                name: sum(a == b for a, b in zip(text, texts["regard"], strict=True)) / batch
                for name, text in texts.items()
            }
            assert beams > 1 or min(same.values()) > 0.9, f"greedy texts are not the same: {same}"
            times, _ = _in_turns(works, options)
            for name, each in times.items():
                rows.append(
                    {
                        "part": "translate",
                        "batch": batch,
                        "beams": beams,
                        "who": name,
                        "tokens_per_s": round(batch * options.new / each, 1),
                        "regard_over_it": round(each / times["regard"], 2),
                        "same_texts_as_regard": same[name],
                    }
                )
                _tell(rows[-1])
    return rows


def first(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The first token of a prompt, over a forward pass."""
    theirs, ours = _pair()
    ids = _random(VOCAB, 1, 512)
    fused, rules = theirs.transformer, Rules(max_length=1)

    def forward() -> object:
        with torch.inference_mode():
            return fused(ids, use_cache=False)

    works = {
        "first token": lambda: greedy(ours, ids.tolist(), rules=rules),
        "regard's forward": lambda: _forward(ours, ids),
        "transformers' forward": forward,
    }
    times, _ = _in_turns(works, options)
    row = {
        "part": "first",
        **{f"{name}_ms": round(1000 * each, 1) for name, each in times.items()},
        "over_own_forward": round(times["first token"] / times["regard's forward"], 2),
        "over_transformers": round(times["first token"] / times["transformers' forward"], 2),
    }
    _tell(row)
    return [row]


def memory(options: argparse.Namespace) -> list[dict[str, Any]]:
    """What the caches hold after some tokens, over the arithmetic of keys and values."""
    rows = []
    _, ours = _pair()
    for length in (PROMPT + options.new, 512, 1024):
        state = ours.begin()
        with torch.no_grad():
            ours.decode(_random(VOCAB, 1, length // 2), state, last=True)
            for _ in range(length - length // 2):
                ours.decode(_random(VOCAB, 1, 1), state, last=True)
        held = sum(each.numel() * each.element_size() for each in _held(state))
        wanted = 2 * 4 * length * 12 * 768
        rows.append({"part": "memory", "positions": length, "held": held, "over": round(held / wanted, 3)})
        _tell(rows[-1])
    return rows


def loss(options: argparse.Namespace) -> list[dict[str, Any]]:
    """What the weights' rounding changes along a text that float32 wrote."""
    _, ours = _pair()
    prompt = _random(VOCAB, 4, PROMPT)
    written = greedy(ours, prompt.tolist(), rules=Rules(max_length=options.new))
    ids = torch.cat((prompt, torch.tensor([each.token_ids for each in written])), dim=1)
    exact = _log_probabilities(ours, ids)
    rows = []
    for precision in ("bfloat16", "int8"):
        found = _log_probabilities(prepared(ours, precision), ids)
        chosen = exact.argmax(dim=2)
        apart = (found - exact).gather(2, chosen[:, :, None]).abs()
        rows.append(
            {
                "part": "loss",
                "precision": precision,
                "same_tokens": round((found.argmax(dim=2) == chosen).double().mean().item(), 4),
                "log_probability_apart_at_most": round(apart.max().item(), 4),
                "on_average": round(apart.mean().item(), 5),
            }
        )
        _tell(rows[-1])
    return rows


def speculation(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Several tokens a step."""
    _, ours = _pair()
    cases: list[tuple[str, Network, list[int]]] = [
        ("gpt2-small, random", prepared(ours), _random(VOCAB, 1, PROMPT)[0].tolist())
    ]
    if options.copier is not None:
        copier = load_checkpoint(options.copier)
        (ids,) = copier.tokenizer.bulk.pieces([LIST])
        cases.append(("a model that copies", copier.network.eval(), list(ids)))
    rows = []
    for case, network, ids in cases:
        rules = Rules(max_length=min(options.new, 2 * len(ids)))
        (expected,) = greedy(network, [ids], rules=rules)
        guesses = {"look-up": _Counted(Lookup()), "draft in int8": _Counted(Draft(prepared(network, "int8")))}
        works: dict[str, Callable[[], object]] = {"greedy": partial(greedy, network, [ids], rules=rules)}
        for name, guess in guesses.items():
            works[name] = partial(speculate, network, [ids], guess=guess, rules=rules)
            (written,) = speculate(network, [ids], guess=guess, rules=rules)
            assert written.token_ids == expected.token_ids, "the text is not the greedy one"
            guess.steps = guess.last()
        times, _ = _in_turns(works, options)
        for name, guess in guesses.items():
            row = {
                "part": "speculate",
                "case": case,
                "guess": name,
                "tokens_a_step": round(len(expected.token_ids) / guess.steps, 2),
                "over_greedy": round(times["greedy"] / times[name], 2),
            }
            rows.append(row)
            _tell(row)
    return rows


class _Counted:
    """A guess, and how many steps it was asked for; the first, of the prompt, asks nobody."""

    def __init__(self, guess: Speculation) -> None:
        self.tokens, self.steps, self._asked, self._guess = guess.tokens, 0, 0, guess

    def of(self, source: Sequence[int]) -> Callable[[Sequence[int], int], Sequence[int]]:
        following, self._asked = self._guess.of(source), 1

        def counted(read: Sequence[int], most: int) -> Sequence[int]:
            self._asked += 1
            return following(read, most)

        return counted

    def last(self) -> int:
        """The steps of the last text."""
        return self._asked


def _pair() -> tuple[Any, Network]:
    """GPT-2 small in transformers and in regard, the same random weights."""
    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(GPT2Config()).eval()
    ours = build(Gpt2Config(head="language-model"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        state = {name: each for name, each in theirs.state_dict().items() if name != "lm_head.weight"}
        write_tensors(state, file)
        load_into(ours, read_tensors(folder), GPT2_KEYS)
    return theirs, ours.eval().requires_grad_(False)


def _continued(model: Any, ids: Tensor, new: int) -> Tensor:
    with torch.inference_mode():
        text = model.generate(
            ids, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0, eos_token_id=None
        )
    return text[:, ids.shape[1] :]


def _forward(network: Network, ids: Tensor) -> object:
    with torch.inference_mode():
        return network(ids, logits=False)


def _held(state: Any) -> list[Tensor]:
    return [each for layer in state.layers for each in (layer.attention._held or ())]


def _log_probabilities(network: Network, ids: Tensor) -> Tensor:
    """Of the tokens after the prompt, each after those before it, as decoding reads them: one at a time."""
    state = network.begin()
    with torch.no_grad():
        logits = [network.decode(ids[:, :PROMPT], state, last=True).logits]
        logits += [
            network.decode(ids[:, at : at + 1], state).logits for at in range(PROMPT, ids.shape[1] - 1)
        ]
    return torch.log_softmax(torch.cat(logits, dim=1), dim=2)


def _translators(folder: Path, threads: int) -> tuple[Any, Any, Any]:
    """The same random weights in transformers, regard and CTranslate2; None where that is not installed."""
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=WORDS,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        activation_function="relu",
        scale_embedding=True,
        eos_token_id=0,
        forced_eos_token_id=None,
        pad_token_id=WORDS - 1,
        decoder_start_token_id=WORDS - 1,
        max_position_embeddings=512,
    )
    theirs = MarianMTModel(config).eval()
    theirs.generation_config.forced_eos_token_id = None
    theirs.save_pretrained(folder / "hf")
    ours = load_checkpoint(folder / "hf")
    if importlib.util.find_spec("ctranslate2") is None:
        return theirs, ours, None
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    specification = MarianMTLoader().get_model_spec(theirs)
    words = [str(number) for number in range(WORDS - 1)]
    specification.register_source_vocabulary(words)
    specification.register_target_vocabulary(words)
    settings = specification.config
    settings.eos_token, settings.unk_token, settings.decoder_start_token = "0", "1", "0"
    specification.validate()
    specification.optimize(quantization="float32")
    (folder / "ct2").mkdir()
    specification.save(str(folder / "ct2"))
    rival = ctranslate2.Translator(
        str(folder / "ct2"), device="cpu", inter_threads=1, intra_threads=threads, compute_type="float32"
    )
    return theirs, ours, rival


def _by_regard(network: Network, ids: Tensor, beams: int, new: int) -> Callable[[], list[list[int]]]:
    rules = Rules.of(network, min_length=new, max_length=new, forbidden_ids=(WORDS - 1,))

    def work() -> list[list[int]]:
        if beams == 1:
            return [list(each.token_ids) for each in greedy(network, ids.tolist(), rules=rules)]
        return [
            list(best.token_ids) for best, *_ in beam_search(network, ids.tolist(), beams=beams, rules=rules)
        ]

    return work


def _by_transformers(model: Any, ids: Tensor, beams: int, new: int) -> Callable[[], list[list[int]]]:
    def work() -> list[list[int]]:
        with torch.inference_mode():
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                num_beams=beams,
                do_sample=False,
                max_new_tokens=new,
                min_new_tokens=new,
                bad_words_ids=[[WORDS - 1]],
            )
        return found[:, 1:].tolist()

    return work


def _by_ctranslate2(translator: Any, ids: Tensor, beams: int, new: int) -> Callable[[], list[list[int]]]:
    sources = [[str(token) for token in row] for row in ids.tolist()]

    def work() -> list[list[int]]:
        found = translator.translate_batch(
            sources,
            beam_size=beams,
            min_decoding_length=new,
            max_decoding_length=new,
            max_batch_size=0,
            disable_unk=False,
        )
        return [[int(word) for word in each.hypotheses[0]] for each in found]

    return work


def _in_turns(
    works: Mapping[str, Callable[[], object]], options: argparse.Namespace
) -> tuple[dict[str, float], float]:
    """The median time of each; and the bytes a second at which `sum` reads memory, in the same turns."""
    clock = time.process_time if options.threads == 1 else time.perf_counter
    large = torch.zeros(2**25)
    works = {**works, "sum": lambda: large.sum()}
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(options.repeats + 1):
        for name, work in works.items():
            start = clock()
            work()
            if turn:  # the first warms up
                times[name].append(clock() - start)
    found = {name: statistics.median(each) for name, each in times.items()}
    return found, large.numel() * 4 / found.pop("sum")


def _random(words: int, rows: int, length: int) -> Tensor:
    return torch.randint(2, words, (rows, length), generator=torch.Generator().manual_seed(0))


def _tell(row: Mapping[str, Any]) -> None:
    print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
