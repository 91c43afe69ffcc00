"""What a trace takes of a real process, without any help for its C library, against the forecast."""

import json
from pathlib import Path

import pytest

from integration.forked import Forked

_CHILD = """
import ctypes, gc, json
from pathlib import Path
import regard
from regard.models.families.gpt2 import Gpt2Config, build
from regard.models import Loaded
from regard.checkpoints import Source

def kilobytes(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))

def measured(model, tokens, **asked):
    told = model.forecast(tokens, **asked)
    model.trace(token_ids=[3] * 64, **asked)
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = kilobytes("VmRSS")
    trace = model.trace(token_ids=[3] * tokens, **asked)
    return [1024 * (kilobytes("VmHWM") - before), told.peak, told.kept]

sizes = {"d_model": 256, "num_layers": 11, "num_heads": 4, "d_ff": 512, "max_seq_len": 2600}
network = build(Gpt2Config(vocab_size=97, **sizes)).eval()
source = Source(name="child", folder=Path("."), kind="folder")
model = regard.Model(Loaded(network=network, tokenizer=None, source=source, family="gpt2", left_out=()))
found = {keep: measured(model, 2503, keep=keep) for keep in ("all",)}
edited = model.edited(regard.Zero("weights", layer=3, key=0))
found["edited"] = measured(edited, 2503, keep="qk")
print(json.dumps(found))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is reset through /proc")
def test_the_growth_of_a_process() -> None:
    """Each is 100 to 250 MB: what is kept, the layer at work, and of the edited one matrices N x N."""
    code, out, err = Forked(program=_CHILD).end()
    assert code == 0, err
    for asked, (grew, peak, kept) in json.loads(out).items():
        assert kept < grew < 1.05 * peak, asked
        assert peak < 1.5 * grew, asked
