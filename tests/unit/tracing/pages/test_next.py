"""What a decoder writes next: a number that is drawn chooses every character with its own share."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import regard
from regard.tracing.pages._next import WriteRequest, _chosen

NODE = shutil.which("node", path=Path(sys.executable).parent)
STATIC = Path(regard.__file__).parent / "views" / "static"

# The shares of three tokens after nothing, and after the token 1, which is the first half of a character.
FIRST, SECOND = [0.5, 0.5, 0.0], [0.2, 0.0, 0.8]
TEXTS = {(0,): "a", (1,): "\ufffd", (1, 0): "\u00e8", (1, 2): "\u00e9"}
SHARES = {"a": 0.5, "\u00e8": 0.1, "\u00e9": 0.4}
COUNT = 400

_RUN = """
const { Writing } = await import(process.argv[1]);
const { texts, logits, count } = JSON.parse(process.argv[2]);
const read = (ids) => ({ text: texts[ids.join()], isText: texts[ids.join()] !== "\ufffd" });
const model = {
  description: { ends: [], positions: 9 },
  *next({ ids }) {
    return { logits: Float32Array.from(logits[Number(ids.at(-1) === 1)]), taken: [], rests: 0 };
  },
};
const tokenizer = {
  encode: () => ({ ids: [0], tokens: [], words: [], wordSpans: [] }),
  readAll: read,
  read: (id) => read([id]),
};
const told = Array.from({ length: count }, (_, at) => {
  const asked = { text: "", temperature: 1, drawn: (at + 0.5) / count };
  const steps = new Writing(model, tokenizer).steps(asked);
  let step = steps.next();
  while (!step.done) step = steps.next();
  return step.value.chosen.text;
});
console.log(JSON.stringify(told));
"""


def _in_python(logits: list[list[float]]) -> list[str]:
    def said(ids: list[int]) -> torch.Tensor:
        return torch.tensor(logits[ids[-1] == 1], dtype=torch.float64)

    tokenizer = SimpleNamespace(
        decode=lambda ids: "".join(TEXTS.get(tuple(ids[1:]), "")), end_ids=frozenset[int]()
    )
    loaded: Any = SimpleNamespace(require_tokenizer=lambda: tokenizer)
    reads: Any = SimpleNamespace(reader=lambda *_: SimpleNamespace(logits=said))
    found = []
    for at in range(COUNT):
        chosen, _ = _chosen(loaded, (0,), WriteRequest(temperature=1.0, drawn=(at + 0.5) / COUNT), reads)
        assert chosen is not None
        found.append(chosen["text"])
    return found


def _on_the_page(logits: list[list[float]]) -> list[str]:
    texts = {",".join(map(str, ids)): text for ids, text in TEXTS.items()} | {"2": "b"}
    given = json.dumps({"texts": texts, "logits": logits, "count": COUNT})
    module = (STATIC / "live" / "next.js").as_uri()
    asked = [str(NODE), "--input-type=module", "-e", _RUN, module, given]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told: list[str] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("write", [_in_python, _on_the_page])
def test_a_character_of_two_tokens_has_its_share(write: Any) -> None:
    logits = [torch.tensor(shares).log().clamp(min=-1e4).tolist() for shares in (FIRST, SECOND)]
    counts = Counter(write(logits))
    assert {text: count / COUNT for text, count in counts.items()} == pytest.approx(SHARES, abs=2 / COUNT)
