"""The pruning that the docs show is what happens."""

import re
from pathlib import Path

import pytest
import torch

from regard.models import FAMILIES
from unit.models.folders import OWN

DOCUMENT = Path(__file__).parents[2] / "docs" / "howto" / "pruning.md"


def test_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = DOCUMENT.read_text(encoding="utf-8")
    names: dict[str, object] = {}
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile("\n".join(code), str(DOCUMENT), "exec"), names)
    torch.manual_seed(0)
    at_random = names["model"].pruning_curve(torch.rand(6, 12), names["likeness"], every=12)  # type: ignore[attr-defined]
    rows = re.findall(
        r"^\| (\d+) \| ([\d.]+) M \| ([\d.]+) MB \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE
    )
    points = names["curve"].points  # type: ignore[attr-defined]
    assert len(rows) == len(points) == 7
    for row, point, other in zip(rows, points, at_random.points, strict=True):
        assert int(row[0]) == point.heads_removed == other.heads_removed
        assert f"{point.parameters / 1e6:.2f}" == row[1]
        assert f"{point.bytes / 1e6:.1f}" == row[2]
        assert float(row[3]) == pytest.approx(point.metric, abs=0.0015)
        assert float(row[4]) == pytest.approx(other.metric, abs=0.0015)
    assert (tmp_path / "smaller" / "model.safetensors").exists()
    assert (tmp_path / "curve.json").exists()


def test_every_family_has_its_line() -> None:
    table = DOCUMENT.read_text(encoding="utf-8")
    names = "BERT DistilBERT ELECTRA mBART MPNet ModernBERT RoBERTa T5 BART Llama Mistral Marian"
    spelled = {name.lower(): name for name in names.split()}
    others = {
        "deberta-v2": "DeBERTa",
        "gpt2": "GPT-2",
        "gemma2": "Gemma 2",
        "gemma3_text": "Gemma 3",
        "phi3": "Phi-3",
    }
    others |= {"qwen2": "Qwen 2", "qwen3": "Qwen 3", "xlm-roberta": "XLM-R"}
    for family in set(FAMILIES) - OWN:
        assert re.search(rf"^\| .*\b{(spelled | others)[family]}\b", table, re.MULTILINE), family
