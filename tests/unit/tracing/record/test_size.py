"""What a trace takes in memory, against a count by hand and against longer traces."""

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.checkpoints import Source
from regard.core.errors import InputError
from regard.models import Loaded
from regard.tracing import bytes_at, kept_bytes, trace_ids
from unit.models import tiny


def loaded(network: Any) -> Loaded:
    source = Source(name="tiny", folder=Path("tiny"), kind="folder")
    return Loaded(network=network.float(), tokenizer=None, source=source, family="none", left_out=())


def test_an_encoder_s_trace_by_hand() -> None:
    # Of float32 vectors: three that are added up, then of each layer its input, q, k, v, context and output,
    # and the last hidden state.
    vectors = 3 + 6 * tiny.ENCODER_DEPTH + 1
    trace = trace_ids(loaded(tiny.encoder()), [3, 1, 4, 1, 5])
    assert kept_bytes(trace) == 4 * 5 * tiny.D_MODEL * vectors


def test_half_precision_takes_half() -> None:
    whole, half = loaded(tiny.encoder()), tiny.encoder().to(torch.bfloat16)
    of_half = Loaded(network=half, tokenizer=None, source=whole.source, family="none", left_out=())
    assert kept_bytes(trace_ids(of_half, [3, 1])) * 2 == kept_bytes(trace_ids(whole, [3, 1]))


@pytest.mark.parametrize("make", [tiny.encoder, tiny.decoder, tiny.both])
@pytest.mark.parametrize("count", [1, 2, 7, 11])
def test_the_forecast_is_what_it_takes(make: Any, count: int) -> None:
    model = loaded(make())
    ids = [3] * count
    trace = trace_ids(model, ids, ids if len(model.network.prefixes) == 2 else None)
    assert bytes_at(model, count) == kept_bytes(trace)


@pytest.mark.parametrize("count", [0, -1, 12])
def test_more_than_the_model_takes(count: int) -> None:
    with pytest.raises(InputError, match=f"num_tokens must be from 1 to 11, the model's limit; got {count}"):
        bytes_at(loaded(tiny.encoder()), count)
