"""How families cut texts: where each of them cuts one hard text."""

from __future__ import annotations

import pytest
from tokenizers import models

from regard.text._cuts import CUTS

TEXT = "I'LL  say 1234½ €,\n\n東京abc camelCase's\t e\u0301x='1';"
PARTS = {
    "gpt-2": "I|'|LL| | say| 1234½| €,|\n|\n|東京abc| camelCase|'s|\t| e|\u0301|x|='|1|';",
    "modern-bert": "I|'|LL| | say| 1234½| €,|\n|\n|東京abc| camelCase|'s|\t| éx|='|1|';",
    "smollm": "I|'|LL| | say| |1|2|3|4|½| €,|\n|\n|東京abc| camelCase|'s|\t| e|\u0301|x|='|1|';",
    "command-r": "I|'|LL| | say| |1|2|3|4|½| €,|\n|\n|東京abc| camelCase|'s|\t| éx|='|1|';",
    "llama-bpe": "I|'LL| | say| |123|4½| €,\n\n|東京abc| camelCase|'s|\t| e|\u0301x|='|1|';",
    "dbrx": "I|'LL| | say| |123|4½| €,\n\n|東京abc| camelCase|'s|\t| e|\u0301x|='|1|';",
    "qwen2": "I|'LL| | say| |1|2|3|4|½| €,\n\n|東京abc| camelCase|'s|\t| éx|='|1|';",
    "tekken": "I|'LL| | say| |1|2|3|4|½| €,\n\n|東京abc| camel|Case|'s|\t| e\u0301x|='|1|';",
    "gpt-4o": "I'LL| | say| |123|4½| €,\n\n|東京abc| camel|Case's|\t| e\u0301x|='|1|';",
    "deepseek-coder": "I|'|LL| | say| |1|2|3|4|½| |€|,|\n|\n|東京|abc| camelCase|'|s|\t| e|\u0301|x|=|'|1|';",
    "deepseek-llm": "I|'|LL| | say| |1|2|3|4|½| |€|,|\n|\n|東京|abc| camelCase|'|s|\t| e|\u0301|x|='|1|';",
    "deepseek-v3": "I|'LL| | say| |123|4½| €,\n\n|東京|abc| camelCase|'s|\t| e\u0301x|='|1|';",
    "default": "I|'|LL| | say| |123|4½| €|,|\n|\n|東京abc| camelCase|'|s|\t| e|\u0301|x|='|1|';",
}


@pytest.mark.parametrize("name", PARTS)
def test_the_parts_of_a_text(name: str) -> None:
    backend = CUTS[name].around(models.BPE())
    text = TEXT if backend.normalizer is None else backend.normalizer.normalize_str(TEXT)
    assert backend.pre_tokenizer is not None
    spans = [span for _, span in backend.pre_tokenizer.pre_tokenize_str(text)]
    assert "|".join(text[start:end] for start, end in spans) == PARTS[name]


def test_each_way_is_shown_above() -> None:
    assert {id(CUTS[name]) for name in PARTS} == {id(cut) for cut in CUTS.values()}
