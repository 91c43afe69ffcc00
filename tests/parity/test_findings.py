"""The findings of docs/learn/findings.md, in eager attention of `transformers` on the same file."""

import pytest
import torch

import regard
from regard.checkpoints import find

pytestmark = pytest.mark.slow

ISSUE = {
    (18, 6): 0.93,
    (17, 3): 0.82,
    (17, 4): 0.80,
    (17, 5): 0.67,
    (18, 7): 0.65,
    (23, 2): 0.52,
    (23, 7): 0.50,
    (20, 6): 0.46,
}
"""What others found with other random tokens: 4 sequences of 50, said twice, without a token in front."""


def test_heads_look_where_they_do_in_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    file = find("smollm2").folder
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, attn_implementation="eager", dtype=torch.float32
    ).eval()
    ids = torch.randint(0, 49_152, (4, 50), generator=torch.Generator().manual_seed(0))
    twice = torch.cat([ids, ids], dim=1)
    with torch.no_grad():
        attentions = torch.stack(theirs(twice, output_attentions=True).attentions)  # (30, 4, 9, 100, 100)
    queries = torch.arange(50, 100)
    found = {back: attentions[..., queries, queries - back].mean((1, 3)) for back in (49, 50)}
    model = regard.load("smollm2")
    rows = [
        [trace.weights(layer) for layer in range(30)]
        for trace in (model.trace(token_ids=each) for each in twice.tolist())
    ]
    ours = torch.stack([torch.stack(each) for each in rows], dim=1)
    torch.testing.assert_close(ours, attentions, rtol=0, atol=2e-4)
    best = {
        back: [divmod(int(place), 9) for place in table.flatten().topk(8).indices]
        for back, table in found.items()
    }
    assert sorted(best[49]) == sorted(ISSUE)
    for head, share in ISSUE.items():
        assert float(found[49][head]) == pytest.approx(share, abs=0.12), head
    assert best[50][:2] == [(14, 3), (8, 0)]
    assert 200 <= int((attentions[..., 1:, 0].mean((1, 3)) > 0.3).sum()) <= 222
