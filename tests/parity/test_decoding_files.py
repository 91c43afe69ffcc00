"""What a checkpoint's files say of writing: as `generate` of transformers reads them, or refused by name."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import regard
from regard.core.errors import CheckpointError
from regard.decoding import (
    Beams,
    Lookup,
    MostLikely,
    Power,
    Rules,
    Sampling,
    beam_search,
    decode_texts,
    greedy,
    recommended,
    speculate,
)
from regard.decoding._rules import IGNORED_FIELDS, REFUSED, RULES, WAYS
from regard.models import load_checkpoint
from tolerances import PARITY_FP32, assert_close_to_largest
from unit.decoding.test_texts import tokenizer

pytestmark = pytest.mark.usefixtures("quiet")

LONGEST, ENDS = 12, [3, 11, 12, 13]
TEXTS = [[9, 21, 30, 7, 14], [17], [5, 36, 22, 22, 8, 30, 11, 19], [33, 6, 28]]
BEGUN = [[7], [7, 8, 9], [20], [5, 5, 5, 5, 6]]
TWO: dict[str, Any] = {
    "vocab_size": 37,
    "d_model": 8,
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 12),
    "max_position_embeddings": 60,
    "init_std": 0.8,
    "forced_eos_token_id": None,
}
MADE: dict[str, Any] = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=37, n_embd=8, n_layer=2, n_head=2, n_positions=60, initializer_range=0.8
        )
    ),
    "bart": lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**TWO)),
    "mbart": lambda: transformers.MBartForConditionalGeneration(transformers.MBartConfig(**TWO)),
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=37, d_model=8, num_layers=2, num_heads=2, d_kv=4, d_ff=12)
    ),
}
SAYS: list[dict[str, Any]] = [
    {},
    {"begin_suppress_tokens": [3, 5, 7, *range(10, 37)]},
    {"min_length": 9},
    {"min_new_tokens": 3, "min_length": 15},
    {"suppress_tokens": list(range(10, 30))},
    {"bad_words_ids": [[3], [5], [6, 7]], "forced_eos_token_id": 3},
    {"repetition_penalty": 1.6, "no_repeat_ngram_size": 2},
    {"forced_bos_token_id": 9, "begin_suppress_tokens": list(range(6, 37))},
]


class Both:
    """The same folder in regard and in transformers."""

    def __init__(self, kind: str, folder: Path, says: dict[str, Any], file: str) -> None:
        torch.manual_seed(1)
        made = MADE[kind]()
        with torch.no_grad():
            for parameter in made.parameters() if kind == "t5" else ():
                parameter.normal_()
        made.double().save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        self.two = kind != "gpt2"
        ids = {"decoder_start_token_id": 4, "pad_token_id": 0, "eos_token_id": ENDS}
        if file == "config.json":
            (folder / "generation_config.json").unlink(missing_ok=True)
            config |= {**says, "eos_token_id": 3, "decoder_start_token_id": 4 if self.two else None}
        else:  # which counts alone
            (folder / "generation_config.json").write_text(json.dumps(ids | says))
            config |= {
                "no_repeat_ngram_size": 1,
                "suppress_tokens": [12, 13],
                "min_length": 6,
                "num_beams": 2,
            }
        (folder / "config.json").write_text(json.dumps(config))
        self.kind, self.folder, self.ends = type(made), folder, [3] if file == "config.json" else ENDS
        self.loaded = load_checkpoint(folder)
        self.rules = Rules.of(self.loaded, max_length=LONGEST)

    @cached_property
    def theirs(self) -> Any:
        return self.kind.from_pretrained(self.folder, dtype=torch.float64).eval()

    def run(self, row: list[int], begun: Sequence[int], **how: Any) -> Any:
        """What theirs writes, the new tokens alone."""
        given, more = torch.tensor([row]), dict[str, Any]()
        if begun:
            more["decoder_input_ids"] = torch.tensor([[4, *begun]])
        output = self.theirs.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=LONGEST,
            return_dict_in_generate=True,
            output_scores=True,
            **how,
            **more,
        )
        at = 1 + len(begun) if self.two else len(row)
        found = [ids[at:].tolist() for ids in output.sequences]
        ends = [next((at for at, id in enumerate(ids) if id in self.ends), len(ids)) for ids in found]
        return [tuple(ids[:end]) for ids, end in zip(found, ends, strict=True)], output


@pytest.mark.parametrize(
    ("kind", "says", "file", "begun"),
    [
        # Of one stack, what counts tokens or looks at those before: the text is among them.
        *(("gpt2", SAYS[place], "generation_config.json", False) for place in (1, 2, 3, 5, 6)),
        *(("mbart", says, "generation_config.json", False) for says in SAYS),
        *(("bart", says, "config.json", False) for says in (SAYS[2], SAYS[6], SAYS[7])),
        ("bart", {"force_bos_token_to_be_generated": True}, "config.json", False),
        *(("t5", says, "generation_config.json", True) for says in (SAYS[0], SAYS[1], SAYS[3], SAYS[6])),
        ("mbart", SAYS[7], "generation_config.json", True),
    ],
    ids=str,
)
def test_greedy_texts(kind: str, says: dict[str, Any], file: str, begun: bool, tmp_path: Path) -> None:
    """In one batch here, each alone there; begun, from where their `decoder_input_ids` end."""
    both = Both(kind, tmp_path, says, file)
    how: dict[str, Any] = {"rules": both.rules, "prefixes": BEGUN if begun else None}
    expected = [
        both.run(row, BEGUN[place] if begun else (), do_sample=False, num_beams=1)[0][0]
        for place, row in enumerate(TEXTS)
    ]
    assert len(set(expected)) > 2
    for found in (
        greedy(both.loaded, TEXTS, **how),
        greedy(both.loaded, TEXTS, **how, cached=False),
        speculate(both.loaded, TEXTS, **how, guess=Lookup()),
    ):
        assert [way.token_ids for way in found] == expected


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_a_model_under_the_lens(kind: str, tmp_path: Path) -> None:
    """Its decoder takes no positions, so that beginnings of several lengths cannot stand side by side."""
    says = {**SAYS[1], "num_beams": 3, "transformers_version": "5.0.0"}
    both, words = Both(kind, tmp_path, says, "generation_config.json"), tokenizer(end=True)
    lensed = regard.lens(both.theirs).loaded
    assert Rules.of(lensed, max_length=LONGEST) == both.rules
    assert recommended(lensed) == recommended(both.loaded)
    both.theirs.generation_config.guidance_scale = 1.5
    with pytest.raises(CheckpointError, match="generation_config: the field 'guidance_scale' must be null"):
        Rules.of(lensed)
    rules = Rules(start_ids=(4,), end_ids=(1,), max_length=7)
    how: dict[str, Any] = {"texts": ["a b", "g", "e e e"], "prefix": ["c", "d d d", ""], "rules": rules}
    found = decode_texts(regard.lens(both.theirs).network, words, **how)
    expected = decode_texts(both.loaded, words, **how)
    assert [way.text for (way,) in found] == [way.text for (way,) in expected]


BEAMS: list[dict[str, Any]] = [
    {},
    {"early_stopping": True},
    {"early_stopping": "never", "length_penalty": 0.3},
    {"length_penalty": 2.0},
    {"length_penalty": -1.0, "min_length": 6},
]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        *(("mbart", says) for says in BEAMS),
        # What differs from kind to kind is how long a way is: whether the text, or what is begun, counts.
        *(("gpt2", says) for says in BEAMS[2:]),
        *(("t5", says) for says in BEAMS[3:]),
    ],
    ids=str,
)
def test_recommended_beams(kind: str, says: dict[str, Any], tmp_path: Path) -> None:
    both = Both(kind, tmp_path, says | {"num_beams": 4}, "generation_config.json")
    search = recommended(both.loaded)
    assert isinstance(search, Beams)
    assert search.beams == 4
    begun = BEGUN if kind == "t5" else [()] * len(TEXTS)
    how: dict[str, Any] = {"counts": search.counts, "exhaustive": search.exhaustive, "rules": both.rules}
    found = beam_search(both.loaded, TEXTS, best=4, **how, prefixes=begun if kind == "t5" else None)
    for row, before, ways in zip(TEXTS, begun, found, strict=True):
        expected, output = both.run(row, before, num_return_sequences=4)
        assert [way.token_ids for way in ways] == expected
        assert_close_to_largest([way.score for way in ways], output.sequences_scores, PARITY_FP32)


@pytest.mark.parametrize(
    ("says", "wanted"),
    [
        ({}, MostLikely()),
        ({"top_k": 7, "temperature": 0.3, "num_beam_groups": 3, "length_penalty": 2.0}, MostLikely()),
        ({"penalty_alpha": 0.6, "do_sample": True, "top_k": 5}, Sampling(top_k=5, seed=3)),
        ({"do_sample": True}, Sampling(top_k=50, seed=3)),
        ({"do_sample": True, "top_k": 0, "top_p": 0.0}, Sampling(top_p=0.0, seed=3)),
        (
            {"do_sample": True, "typical_p": 0.3, "epsilon_cutoff": 0.1, "eta_cutoff": 0.0, "min_p": 0.0},
            Sampling(top_k=50, typical_p=0.3, epsilon_cutoff=0.1, eta_cutoff=0.0, min_p=0.0, seed=3),
        ),
        ({"num_beams": 3}, Beams(3, exhaustive="heuristic")),
        ({"num_beams": 3, "early_stopping": True, "top_k": 3}, Beams(3)),
        (
            {"num_beams": 3, "early_stopping": "never", "length_penalty": 2},
            Beams(3, counts=Power(2), exhaustive=True),
        ),
        ({"num_beams": 3, "early_stopping": "nie"}, 'early_stopping must be true, false or "never"'),
        ({"num_beams": 3, "do_sample": True}, "'num_beams' must be null"),
        ({"num_beams": 4, "num_beam_groups": 2}, "'num_beam_groups' must be null"),
        ({"num_beams": 4, "diversity_penalty": 0.5}, "'diversity_penalty' must be null"),
        ({"num_beams": 4, "renormalize_logits": True}, "'renormalize_logits' must be null"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "'penalty_alpha' must be null.* got 0.6. Set it to null"),
        ({"dola_layers": "high"}, "'dola_layers' must be null"),
        ({"do_sample": True, "top_h": 0.4}, "'top_h' must be null"),
        ({"do_sample": True, "temperature": 0.0}, "temperature must be above 0; got 0.0"),
        ({"do_sample": True, "typical_p": 0}, "typical_p must be above 0 and at most 1; got 0"),
    ],
    ids=str,
)
def test_recommended(says: dict[str, Any], wanted: Any, tmp_path: Path) -> None:
    loaded = Both("gpt2", tmp_path, says, "generation_config.json").loaded
    if not isinstance(wanted, str):
        assert recommended(loaded, seed=3) == wanted
        return
    with pytest.raises(CheckpointError, match=wanted):
        recommended(loaded)


def test_every_field_is_known(tmp_path: Path) -> None:
    """Of the transformers that is installed; each is of one kind."""
    theirs = {name for name in vars(transformers.GenerationConfig()) if not name.startswith("_")}
    known = [*RULES, *WAYS, *REFUSED, *IGNORED_FIELDS]
    assert len(set(known)) == len(known)
    assert theirs <= set(known)
    both = Both("gpt2", tmp_path, {}, "generation_config.json")
    file = tmp_path / "generation_config.json"
    for name in [*REFUSED, "forced_bos_token_id", "of_next_year"]:
        for value, harmless in ((None, True), (REFUSED.get(name), True), (7, False), ([[5]], False)):
            file.write_text(json.dumps({name: value}))
            if harmless:
                assert Rules.of(both.loaded) == Rules()
            else:
                with pytest.raises(
                    CheckpointError, match=f"generation_config.json: the field '{name}' must be"
                ):
                    Rules.of(both.loaded)
    # What the user says counts before the file.
    file.write_text('{"forced_bos_token_id": 7, "min_new_tokens": 9, "min_length": 4}')
    given = Rules.of(both.loaded, first_id=5, max_length=3)
    assert given == Rules(first_id=5, min_length=3, max_length=3)
    file.write_text('{"min_length": 4}')
    assert Rules.of(both.loaded, min_length=1) == Rules(min_length=1)


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({"eos_token_id": "end"}, "'eos_token_id' must be an id or a list of ids; got end"),
        ({"suppress_tokens": [-1]}, "'suppress_tokens' must be an id or a list"),
        ({"bad_words_ids": [5, 6]}, "'bad_words_ids' must be an id or a list"),
        ({"forced_eos_token_id": [3, 4]}, r"'forced_eos_token_id' must be one id; got \[3, 4\]"),
        ({"decoder_start_token_id": [3, 4]}, "'decoder_start_token_id' must be one id"),
        ({"repetition_penalty": 0}, "repetition_penalty must be above 0; got 0"),
        ({"no_repeat_ngram_size": "two"}, "no_repeat must be a whole number"),
    ],
    ids=str,
)
def test_values_that_cannot_be(says: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"generation_config.json: .*{words}"):
        Both("bart", tmp_path, says, "generation_config.json")
