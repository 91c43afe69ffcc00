"""Two small models for the example pages, trained here since no package brings any like them.

`repeater`, a decoder of two layers, learns to go on with a list of words that is said a second time: this
needs an induction head (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"). `numbers`,
an encoder-decoder, learns to translate English numbers to German, where tens and ones change places. Each is
measured on what it has not seen, and refused if it has not learned its task.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import BartConfig, BartForConditionalGeneration, LlamaConfig, LlamaForCausalLM

WORDS = """
apple boat cloud door eagle fire garden house island jacket kettle lamp moon needle ocean paper
queen river stone tree uncle violin window yellow zebra bread chair dance earth flower glass horse
iron jump king letter milk night orange plate quiet rain snow table umbrella voice wolf year
""".split()  # noqa: SIM905

ONES = "one two three four five six seven eight nine".split()  # noqa: SIM905
TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()  # noqa: SIM905
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
EINER = "ein zwei drei vier fünf sechs sieben acht neun".split()  # noqa: SIM905
ZEHNER = "zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn".split()  # noqa: SIM905
ZIG = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()  # noqa: SIM905


def english(number: int) -> str:
    """A number from 1 to 9999 in words.

    Example:
        >>> english(4237)
        'four thousand two hundred thirty seven'
    """
    thousands, hundreds, rest = number // 1000, number // 100 % 10, number % 100
    words = [ONES[thousands - 1], "thousand"] if thousands else []
    words += [ONES[hundreds - 1], "hundred"] if hundreds else []
    if 10 <= rest < 20:
        return " ".join([*words, TEENS[rest - 10]])
    words += [TENS[rest // 10 - 2]] if rest >= 20 else []
    return " ".join([*words, ONES[rest % 10 - 1]] if rest % 10 else words)


def german(number: int) -> str:
    """The same in German, a space between the parts.

    Example:
        >>> german(4237)
        'vier tausend zwei hundert sieben und dreißig'
    """
    thousands, hundreds, rest = number // 1000, number // 100 % 10, number % 100
    words = [EINER[thousands - 1], "tausend"] if thousands else []
    words += [EINER[hundreds - 1], "hundert"] if hundreds else []
    if 10 <= rest < 20:
        return " ".join([*words, ZEHNER[rest - 10]])
    if rest % 10:
        words += [EINER[rest % 10 - 1] if rest > 1 else "eins"]
    words += ["und"] if rest > 20 and rest % 10 else []
    return " ".join([*words, ZIG[rest // 10 - 2]] if rest >= 20 else words)


def repeater(folder: Path) -> float:
    """Trains the decoder, writes it, and returns how often it is right in the second half of a new list."""
    tokenizer = _tokenizer(["[UNK]", "[BOS]", *WORDS], start="[BOS]")
    torch.manual_seed(0)
    # Rotary positions that turn fast enough for lists as short as these to tell a neighbour from the next.
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": None}
    rope = {"rope_type": "default", "rope_theta": 100.0}
    model = LlamaForCausalLM(
        LlamaConfig(
            **sizes, **ids, vocab_size=len(WORDS) + 2, max_position_embeddings=64, rope_parameters=rope
        )
    )

    def batch(size: int, length: int) -> torch.Tensor:
        # Words come more than once in a list, so that only the word before says which is next.
        order = torch.randint(2, len(WORDS) + 2, (size, length))
        return torch.cat([torch.ones(size, 1, dtype=torch.long), order, order], dim=1)

    def loss(step: int) -> torch.Tensor:
        length = random.Random(step).randint(8, 24)
        ids = batch(64, length)
        logits = model(ids).logits[:, length + 1 : -1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, length + 2 :].flatten())

    _train(model, loss)
    ids = batch(500, 9)
    with torch.inference_mode():
        guessed = model(ids).logits[:, 10:-1].argmax(-1)
    right = float((guessed == ids[:, 11:]).float().mean())
    return _write(folder, model, tokenizer, right)


def numbers(folder: Path) -> float:
    """Trains the encoder-decoder, writes it, and returns its share of right translations of new numbers."""
    vocabulary = [
        *ONES,
        *TEENS,
        *TENS,
        "thousand",
        "hundred",
        *EINER,
        "eins",
        *ZEHNER,
        *ZIG,
        "tausend",
        "hundert",
        "und",
    ]
    tokenizer = _tokenizer(["[PAD]", "[BOS]", "[EOS]", "[UNK]", *vocabulary], end="[EOS]")
    torch.manual_seed(0)
    layers = {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
    }
    sizes = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_position_embeddings": 24}
    config = BartConfig(
        **layers, **sizes, vocab_size=len(vocabulary) + 4, dropout=0.0,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=2,
    )  # fmt: skip
    model = BartForConditionalGeneration(config)
    order = random.Random(0).sample(range(1, 10_000), 9_999)
    unseen, seen = order[:500], order[500:]

    def ids_of(texts: Sequence[str]) -> torch.Tensor:
        rows = [tokenizer.encode(text).ids for text in texts]
        longest = max(map(len, rows))
        return torch.tensor([row + [0] * (longest - len(row)) for row in rows])

    def loss(step: int) -> torch.Tensor:
        some = random.Random(step).sample(seen, 64)
        source, target = ids_of([english(n) for n in some]), ids_of([german(n) for n in some])
        start = torch.ones(len(some), 1, dtype=torch.long)
        logits = model(
            input_ids=source,
            attention_mask=(source != 0).long(),
            decoder_input_ids=torch.cat([start, target[:, :-1]], dim=1),
        ).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0)

    _train(model, loss)
    source = ids_of([english(n) for n in unseen])
    found = model.generate(source, attention_mask=(source != 0).long(), max_new_tokens=12, num_beams=1)
    said = [tokenizer.decode(row) for row in found.tolist()]
    right = sum(text == german(n) for text, n in zip(said, unseen, strict=True)) / len(unseen)
    return _write(folder, model, tokenizer, right)


def _tokenizer(words: Sequence[str], *, start: str = "", end: str = "") -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens([word for word in words if word.startswith("[")])
    special = [(word, words.index(word)) for word in (start, end) if word]
    tokenizer.post_processor = TemplateProcessing(single=f"{start} $A {end}".strip(), special_tokens=special)
    return tokenizer


def _train(model: torch.nn.Module, loss: Callable[[int], torch.Tensor]) -> None:
    """Until ten batches in a row are as good as known, at most some minutes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    good = 0
    for step in range(2500):
        optimizer.zero_grad()
        value = loss(step)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        good = good + 1 if value.item() < 0.04 else 0
        if good == 10:
            break
    model.eval()


def _write(folder: Path, model: torch.nn.Module, tokenizer: Tokenizer, right: float) -> float:
    if right < 0.95:
        raise SystemExit(f"{folder.name} has not learned its task: right in {right:.1%}")
    model.save_pretrained(folder)  # type: ignore[operator]
    tokenizer.save(str(folder / "tokenizer.json"))
    return right
