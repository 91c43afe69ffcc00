"""What comes next on a live page, by a GPU or by WebAssembly; and what a page does where the GPU fails.

The GPU is Chromium's own, in software.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, expect

import regard
from integration.conftest import ARGUMENTS, AS_ROOT
from integration.live_models import live_model
from regard.positions import Rotary
from regard.tracing.pages._live_page import live_model as packed
from unit.models import tiny
from unit.models.folders import network
from unit.models.in_blocks import in_blocks

STATIC = Path(regard.__file__).parent / "views" / "static"

RUN = """async ({ wanted, gpu, wrong, requests }) => {
    const { LiveModel } = await import("/static/live/model.js");
    const description = await (await fetch(`/${wanted}/description.json`)).json();
    const blocks = {};
    for (const name of Object.keys(description.blocks))
        blocks[name] = new Uint8Array(await (await fetch(`/${wanted}/${name}`)).arrayBuffer());
    const model = await LiveModel.open(description, name => blocks[name], { gpu });
    const next = async request => {
        const steps = model.next(request);
        for (;;) {
            const { done, value } = steps.next();
            const { how } = model.nextWord;
            if (done) return { ...value, logits: [...value.logits], taken: [...value.taken], how };
            await value;
        }
    };
    if (wrong) {
        const { writeBuffer } = GPUQueue.prototype;
        GPUQueue.prototype.writeBuffer = function (buffer, at, data) {
            const isX = data instanceof Float32Array;
            writeBuffer.call(this, buffer, at, isX ? data.map(each => 1.01 * each) : data);
        };
    }
    const answers = [];
    for (const request of requests) {
        if (request.lose) model.nextWord.gpu.device.destroy();
        else if (request.greedy) {
            const ids = [...request.ids];
            while (ids.length < request.ids.length + request.greedy) {
                const { logits } = await next({ ids });
                ids.push(logits.indexOf(Math.max(...logits)));
            }
            answers.push(ids.slice(request.ids.length));
        } else answers.push(await next(request));
    }
    return { how: model.nextWord.how, fell: model.nextWord.fell, answers };
}"""

BLOCKS = "llama in blocks of 4 and 8 bits"
# Each part that a shader has: RMS norms, gates, turned positions and blocks of a file; biases, LayerNorm and
# learned positions; soft caps; normed queries and keys. The other families only put these together anew.
FAMILIES = (BLOCKS, "gpt2", "gemma2", "gemma3_text")
TEXT = "a man on the river bank in"
CLOSE = 1e-4

Next = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def with_gpu(browser: Browser) -> Iterator[Browser]:
    """Chromium with a GPU."""
    gpu = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
    arguments = [*ARGUMENTS, *(AS_ROOT if os.geteuid() == 0 else []), *gpu]
    executable = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    found = browser.browser_type.launch(executable_path=executable, args=arguments)
    yield found
    found.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], regard.Model]:
    folder = tmp_path_factory.mktemp("models")

    def made(name: str) -> regard.Model:
        return _in_blocks() if name == BLOCKS else live_model(folder / name, name)

    return cache(made)


@pytest.fixture(scope="module")
def run(
    browser: Browser,
    with_gpu: Browser,
    models: Callable[[str], regard.Model],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Next]:
    """Runs requests of what comes next, in Chromium with a GPU or without."""
    root = tmp_path_factory.mktemp("served")
    (root / "static").symlink_to(STATIC)
    (root / "index.html").write_text("<!doctype html><title>-</title>")

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
    Thread(target=server.serve_forever, daemon=True).start()

    def run(
        family: str, *requests: dict[str, Any], gpu: str = "any", there: bool = True, wrong: bool = False
    ) -> dict[str, Any]:
        if not (root / family).exists():
            live = packed(models(family).loaded)
            (root / family).mkdir()
            (root / family / "description.json").write_text(json.dumps(live.description))
            for name, data in live.weights.blocks.items():
                (root / family / name).write_bytes(data)
        page = (with_gpu if there else browser).new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        wanted = {"wanted": family, "gpu": gpu, "wrong": wrong, "requests": requests}
        found: dict[str, Any] = page.evaluate(RUN, wanted)
        page.close()
        return found

    yield run
    server.shutdown()
    server.server_close()


def _in_blocks() -> regard.Model:
    torch.manual_seed(0)
    sizes = {"vocab_size": 31, "d_model": 64, "d_ff": 96, "head_dim": 32, "max_seq_len": 40}
    made = network("llama", **sizes, tie_word_embeddings=True, rotary=Rotary(32, base=100.0))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    in_blocks(loaded := tiny.loaded(made, family="llama"))
    return regard.Model(loaded)


def _rounded(model: regard.Model) -> regard.Model:
    """With the weights that the page has."""
    return regard.Model(packed(model.loaded).rounded)


def _logits(model: regard.Model, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits
    assert logits is not None
    return logits[0, -1]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_comes_next_is_pythons(family: str, run: Next, models: Callable[[str], regard.Model]) -> None:
    model = _rounded(models(family))
    ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    # A text, one that goes on, a shorter one, another that begins like it, and one token alone.
    texts = [ids[:9], ids, ids[:3], ids[:3] + ids[6:], ids[:1]]
    wanted = list(ids)
    for _ in range(12):
        wanted.append(int(_logits(model, wanted).argmax()))
    for how, gpu in (("webgpu", "any"), ("wasm", "off")):
        answer = run(family, *({"ids": each} for each in texts), {"ids": ids, "greedy": 12}, gpu=gpu)
        assert (answer["how"], answer["fell"]) == (how, "")
        *told, written = answer["answers"]
        for each, found in zip(texts, told, strict=True):
            np.testing.assert_allclose(found["logits"], _logits(model, each), atol=CLOSE)
            trace = model.trace(token_ids=each)
            layers = trace.layers_of("decoder")
            taken = sum(trace.norm_weighted(layer)[:, -1].sum(dim=0) for layer in layers)
            assert isinstance(taken, torch.Tensor)
            np.testing.assert_allclose(found["taken"], taken, rtol=1e-4, atol=1e-4)
            rests = torch.stack([trace.weights(layer)[:, -1, 0] for layer in layers]).mean()
            assert found["rests"] == pytest.approx(float(rests), abs=1e-5)
        assert written == wanted[len(ids) :]


def test_heads_off_and_hidden_words_are_worked_out_without_the_gpu(run: Next) -> None:
    ids = list(range(70, 82))
    edits = [{"ids": ids, "off": [[1, 2]]}, {"ids": ids, "unseen": [3]}, {"ids": ids}]
    on, off = run("llama", *edits), run("llama", *edits, gpu="off")
    assert on["how"] == "webgpu"
    for one, other in zip(on["answers"][:2], off["answers"][:2], strict=True):
        assert one["logits"] == other["logits"]
    assert on["answers"][2]["logits"] != off["answers"][2]["logits"]  # sums in another order
    np.testing.assert_allclose(on["answers"][2]["logits"], off["answers"][2]["logits"], atol=CLOSE)


def test_a_gpu_that_is_lost_or_wrong_is_asked_no_more(run: Next) -> None:
    ids = list(range(70, 82))
    wanted = [each["logits"] for each in run("llama", {"ids": ids[:9]}, {"ids": ids}, gpu="off")["answers"]]
    lost = run("llama", {"ids": ids[:9]}, {"lose": True}, {"ids": ids})
    assert [each["how"] for each in lost["answers"]] == ["webgpu", "wasm"]
    assert "destroy" in lost["fell"]
    np.testing.assert_allclose(lost["answers"][1]["logits"], wanted[1], atol=CLOSE)
    wrong = run("llama", {"ids": ids[:9]}, {"ids": ids}, wrong=True)
    assert [each["how"] for each in wrong["answers"]] == ["wasm", "wasm"]
    assert wrong["fell"].startswith("its logits differed by ")
    assert [each["logits"] for each in wrong["answers"]] == wanted


def test_without_a_gpu_or_with_one_in_software_webassembly_does_it(run: Next) -> None:
    for options in ({"there": False}, {"gpu": ""}):
        answer = run("llama", {"ids": [70, 71, 72]}, **options)
        assert (answer["how"], answer["fell"]) == ("wasm", "")


def test_a_page_writes_by_the_gpu_and_says_so_and_goes_on_without_it(
    with_gpu: Browser, models: Callable[[str], regard.Model], tmp_path: Path
) -> None:
    model = _rounded(models("llama"))
    models("llama").live_page(TEXT).write(tmp_path / "page.html")
    page = with_gpu.new_page()

    def expect_next(text: str) -> None:
        expect(page.locator(".writer-bars > li")).to_have_count(5)
        expect(page.locator(".live")).not_to_have_class(re.compile("working"))
        best = _logits(model, list(model.tokenizer.encode(text).token_ids)).softmax(0).topk(5)
        shares = page.locator(".writer > .writer-bars .writer-bar").evaluate_all(
            "all => all.map(each => Number(each.style.getPropertyValue('--share')))"
        )
        np.testing.assert_allclose(shares, best.values, atol=1e-4)

    # One in software is used where it is asked for alone.
    note = expect(page.locator(".door > .door-note"))
    for query, says in (("", ""), ("?gpu=any", "The GPU works out what comes next.")):
        if query:
            # In the worker: a device that is lost as soon as it has been asked twice.
            page.add_init_script(
                "const Plain = Blob; window.Blob = class extends Plain { constructor(parts, options) {"
                f" super(options?.type ? [{json.dumps(LOSING)}, ...parts] : parts, options); }} }}"
            )
        page.goto((tmp_path / "page.html").as_uri() + query)
        expect_next(TEXT)
        expect(page.locator(".live-note")).to_have_text(says)
        note.to_contain_text(f"left out here. {says}".strip())
    for text in (f"{TEXT} a", f"{TEXT} a river"):
        page.get_by_label("Type a sentence").fill(text)
        expect_next(text)
    note.to_contain_text("The GPU cannot be used")
    page.close()


LOSING = """
    const { submit } = GPUQueue.prototype;
    const { requestDevice } = GPUAdapter.prototype;
    let [device, left] = [null, 2];
    GPUAdapter.prototype.requestDevice = async function (options) {
        return (device = await requestDevice.call(this, options));
    };
    GPUQueue.prototype.submit = function (buffers) {
        if (left-- === 0) device.destroy();
        submit.call(this, buffers);
    };
"""
