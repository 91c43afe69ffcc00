"""The live page names heads by the rule of `regard heads`: both on the same weights."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.tracing import Trace
from regard.tracing.pages._names import live_names, names_of
from regard.tracing.record import is_punctuation

NODE = shutil.which("node", path=Path(sys.executable).parent)
STATIC = Path(__file__).parents[3] / "src/regard/views/static"  # a wheel has its bundles alone

# A model, a text, and the part of the sink that most heads rest on: the first word, a mark, [CLS].
TEXTS = [
    ("smollm2", "When Mary and John went to the store, John gave a drink to", "first word"),
    ("smollm2", "“Mary,” said John, and then he gave the drink to her.", "first"),
    ("all-MiniLM-L6-v2", "The cat sat on the mat, and the dog lay on the rug.", "first"),
]
SAID = {"first word": "rests on the first word", "first": "rests on marks"}


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    models = {name: regard.load(name) for name in ("smollm2", "all-MiniLM-L6-v2")}
    return [models[model].trace(text) for model, text, _ in TEXTS]


def _given(trace: Trace) -> dict[str, Any]:
    [kind] = trace.kinds
    encoding = trace.stack(kind).encoding
    text = {
        "ids": list(encoding.token_ids),
        "special": [each.special for each in encoding.tokens],
        "marks": [is_punctuation(each, encoding.words) for each in encoding.tokens],
    }
    heads = [head.flatten().tolist() for layer in trace.layers_of(kind) for head in trace.weights(layer)]
    return {"facts": live_names(kind), "causal": kind == "decoder", "text": text, "heads": heads}


def test_one_rule_names_heads_in_python_and_in_the_page(traces: list[Trace], tmp_path: Path) -> None:
    (tmp_path / "given.json").write_text(json.dumps([_given(trace) for trace in traces]), "utf-8")
    script = Path(__file__).with_name("naming_run.mjs")
    done = subprocess.run(
        [str(NODE), str(script), str(STATIC), str(tmp_path / "given.json")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for (*_, part), trace, page in zip(TEXTS, traces, json.loads(done.stdout), strict=True):
        [layers] = names_of(trace, 1 << 30)["kinds"].values()
        python = [head for layer in layers for head in layer]
        assert [[(each["name"], each["detail"]) for each in head] for head in page] == [
            [(each["name"], each.get("detail", "")) for each in head] for head in python
        ]
        for shown, found in zip(page, python, strict=True):
            assert [each["effect"] for each in shown] == pytest.approx(
                [each["effect"] for each in found], abs=2e-4
            )
        sinks = [each for head in page for each in head if each["name"] == "delimiter sink"]
        rests = [each for each in sinks if each["detail"] == part]
        assert len(rests) > len(sinks) / 2
        assert {each["said"] for each in rests} == {SAID[part]}
