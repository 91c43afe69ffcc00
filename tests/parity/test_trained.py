"""Training beside transformers: the loss and gradients of objectives, and the models that runs leave."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.nn import functional

from regard.models import load_checkpoint, write_checkpoint
from regard.training import train
from tolerances import FP64, PARITY_FP32, assert_close_to_largest
from unit.training.small import TEXTS, batch, loss, tasks, tokenizer
from unit.training.test_runs import ROWS, settings_of

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("name", ROWS)
def test_its_card_says_how_to_load_it(name: str, tmp_path: Path) -> None:
    more: dict[str, Any] = {"steps": 1, "task": {"bleu_texts": 0}} if name == "seq2seq" else {"steps": 1}
    folder = train(settings_of(name, tmp_path, **more), tmp_path / "run").model
    found = re.search(
        r"^model = (Auto\w+)\.from_pretrained", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert found is not None
    theirs, told = getattr(transformers, found[1]).from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), told
    tokenizer, ours = transformers.AutoTokenizer.from_pretrained(folder), load_checkpoint(folder)
    ids = tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]
    assert ours.require_tokenizer().encode(TEXTS[0]).token_ids == tuple(ids[0].tolist())
    is_pair = len(ours.network.prefixes) == 2
    with torch.no_grad():
        theirs_read, ours_read = (
            {name: ids[:, :3]} if is_pair else {} for name in ("decoder_input_ids", "decoder_token_ids")
        )
        wanted = theirs.eval()(input_ids=ids, **theirs_read).logits
        got = ours.network.eval()(ids, **ours_read).logits
    assert_close_to_largest(got, wanted, PARITY_FP32)


HEADS = {
    "clm": transformers.AutoModelForCausalLM,
    "mlm": transformers.AutoModelForMaskedLM,
    "seq2seq": transformers.AutoModelForSeq2SeqLM,
    "classify": transformers.AutoModelForSequenceClassification,
    "pairs": transformers.AutoModelForSequenceClassification,
    "tag": transformers.AutoModelForTokenClassification,
}


@pytest.mark.parametrize("name", HEADS)
def test_loss_and_gradients_are_those_of_transformers_in_float64(name: str, tmp_path: Path) -> None:
    task = tasks()[name].double()
    made = batch(task)
    ours = loss(task, made)
    ours.backward()
    folder = write_checkpoint(task.network, tmp_path / "weights", tokenizer=tokenizer())
    theirs = HEADS[name].from_pretrained(folder, dtype=torch.float64).train()
    given: dict[str, Any] = {"input_ids": made.source.ids, "attention_mask": made.source.is_token.long()}
    if made.source.types is not None:
        given["token_type_ids"] = made.source.types
    if made.target is not None:
        given["decoder_input_ids"] = made.target.ids
        given["decoder_attention_mask"] = made.target.is_token.long()
    logits, smoothing = theirs(**given).logits, 0.1 if name == "seq2seq" else 0.0
    wanted = functional.cross_entropy(
        logits.flatten(0, -2), made.labels.flatten(), ignore_index=-100, label_smoothing=smoothing
    )
    wanted.backward()
    assert_close_to_largest(ours, wanted, FP64)
    for each in theirs.parameters():  # written as if weights, they come back by our names
        each.data = torch.zeros_like(each) if each.grad is None else each.grad
    theirs.save_pretrained(tmp_path / "gradients")
    gradients = load_checkpoint(tmp_path / "gradients").network.state_dict()
    learned = {key: each.grad for key, each in task.network.named_parameters() if each.grad is not None}
    assert_close_to_largest(
        torch.cat([each.flatten() for each in learned.values()]),
        torch.cat([gradients[key].flatten() for key in learned]),
        FP64,
    )
