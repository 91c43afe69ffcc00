"""Names that stand in for transformers' own, put into configs and taken back."""

import copy
import pickle
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from lens_models import FAMILIES, bert, gpt2
from regard.core.errors import InputError
from regard.foreign import _implementations
from regard.foreign._implementations import Call, StandIn, configs_of, listening, register


class Silent:
    """Listens, and changes nothing."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.masks = 0

    def attention(self, call: Call) -> Any:
        self.calls.append(call.name)
        return call.original()

    def mask_made(self, values: Tensor, mask: Any) -> None:
        self.masks += 1


def test_a_stand_in_equals_the_name_it_stands_for_and_is_another_key() -> None:
    key = StandIn("sdpa")
    assert key == "sdpa"
    assert "sdpa" == key  # noqa: SIM300 - both orders are asked in models
    assert not key.__ne__("sdpa")
    assert key != "eager"
    assert key in ("eager", "sdpa")
    assert {"sdpa": 1}.get(key) is None
    assert {key: 1}.get("sdpa") is None
    assert key == StandIn("sdpa") != StandIn("eager")
    for again in (copy.deepcopy(key), pickle.loads(pickle.dumps(key))):
        assert type(again) is StandIn
        assert str(again) == "regard:sdpa"


def test_configs_hold_the_stand_in_only_while_somebody_listens() -> None:
    register()
    model = FAMILIES["t5"]()
    configs = configs_of(model)
    assert len(configs) >= 3  # the model's, the encoder's and the decoder's
    with listening(configs, Silent()):
        assert all(type(config._attn_implementation) is StandIn for config in configs)
        with listening(configs, Silent()):
            pass
        assert all(type(config._attn_implementation) is StandIn for config in configs)
    assert [type(config._attn_implementation) for config in configs] == [str] * len(configs)


def test_what_somebody_chooses_meanwhile_stays() -> None:
    register()
    model = bert()
    with listening(configs_of(model), Silent()):
        model.set_attn_implementation("eager")
    assert model.config._attn_implementation == "eager"
    assert type(model.config._attn_implementation) is str


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_calls_and_masks_arrive(kernel: str) -> None:
    register()
    model = gpt2()
    model.set_attn_implementation(kernel)
    listener = Silent()
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    with torch.no_grad(), listening(configs_of(model), listener):
        model(input_ids=torch.tensor([[11, 12, 13], [14, 15, 0]]), attention_mask=mask)
    assert listener.calls == [kernel, kernel]
    assert listener.masks == 1


def test_a_file_with_its_own_registry_keeps_its_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    module = gpt2().transformer.h[0].attn
    mine = transformers.AttentionInterface()
    mine["sdpa"] = lambda *args, **kwargs: ("mine", None)
    monkeypatch.setitem(type(module).forward.__globals__, "ALL_ATTENTION_FUNCTIONS", mine)
    q = torch.zeros(1, 1, 2, 3)
    assert Call("sdpa", module, q, q, q, {}).original() == ("mine", None)


def test_eager_attention_that_cannot_be_told_is_refused() -> None:
    class Odd(nn.Module):
        def forward(self) -> None: ...

    q = torch.zeros(1, 1, 2, 3)
    with pytest.raises(InputError, match=r"eager attention in Odd.*set_attn_implementation"):
        Call("eager", Odd(), q, q, q, {}).original()


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from regard.core.errors import MissingExtraError

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"pip install transformers"):
        _implementations.register()
