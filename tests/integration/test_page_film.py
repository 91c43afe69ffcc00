"""The steps of a view as a film: a WebM file that plays, and whose pictures differ."""

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Page as BrowserPage

OpenPage = Callable[..., BrowserPage]

# How large and how long it is, and how far two of its pictures differ.
_PLAYED = """async (address) => {
    const video = document.createElement("video");
    const come = (name) =>
        new Promise((done, fail) => {
            video.addEventListener(name, done, { once: true });
            video.addEventListener("error", () => fail(video.error), { once: true });
            setTimeout(() => fail(new Error(`no ${name} in 30 s`)), 30_000);
        });
    video.src = address;
    await come("loadeddata");
    const { videoWidth: width, videoHeight: height } = video;
    const pen = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    const pixels = () => {
        pen.drawImage(video, 0, 0);
        return pen.getImageData(0, 0, width, height).data;
    };
    const first = pixels();
    video.currentTime = 1e6; // a recorder writes no length: the end says it
    await come("seeked");
    let apart = 0;
    // On a busy machine the picture comes some time after the event.
    for (let tries = 0; apart === 0 && tries < 50; tries += 1) {
        const last = pixels();
        for (let i = 0; i < first.length; i += 1) apart = Math.max(apart, Math.abs(first[i] - last[i]));
        await new Promise((done) => setTimeout(done, 100));
    }
    return { width, height, seconds: video.currentTime, apart };
}"""


def saved_film(page: BrowserPage, browser: Browser, to: Path) -> dict[str, float]:
    """Saves the steps on show as a film, and plays it in another window."""
    button = page.get_by_role("button", name="Save the steps as a film (WebM)")
    with page.expect_download() as caught:
        button.click()
        expect(button).to_have_text("Stop")
    caught.value.save_as(to)
    expect(button).to_have_text("Film")
    film = to.read_bytes()
    assert film.startswith(b"\x1a\x45\xdf\xa3")  # EBML
    blank = browser.new_page()
    address = f"data:video/webm;base64,{base64.b64encode(film).decode()}"
    played: dict[str, float] = blank.evaluate(_PLAYED, address)
    blank.close()
    return played


def test_a_decoders_rows(
    open_page: OpenPage, browser: Browser, tmp_path: Path, tiny_page: Callable[[str], Path]
) -> None:
    page = open_page(tiny_page("bart"), "#kind=decoder&row=1&view=heads")
    played = saved_film(page, browser, tmp_path / "rows.webm")
    rows = int(page.get_by_label("Row that is being written").get_attribute("max") or "") + 1
    assert rows > 2
    assert played["seconds"] == pytest.approx((rows + 1) * 0.5, rel=0.5)
    assert min(played["width"], played["height"]) > 100
    assert played["apart"] > 100


def test_the_paths_of_a_word(
    open_page: OpenPage, browser: Browser, compared_pages: dict[str, Path], tmp_path: Path
) -> None:
    page = open_page(compared_pages["movement"], "#view=movement&step=1")
    played = saved_film(page, browser, tmp_path / "movement.webm")
    assert played["seconds"] > 1
    assert played["width"] > 300
    assert played["apart"] > 100


def test_a_browser_that_records_no_film_says_so(open_page: OpenPage, compared_pages: dict[str, Path]) -> None:
    page = open_page(compared_pages["movement"], "#view=movement")
    page.evaluate("delete window.MediaRecorder")
    page.get_by_role("button", name="Save the steps as a film (WebM)").click()
    expect(page.get_by_text("This browser cannot record a film")).to_be_visible()
