// A sequence of pictures as a film: WebM, which the browser records while they are drawn on a canvas.

import { make } from "./dom.js";
import { download, drawnSheet } from "./save.js";

const EACH = 500; // milliseconds a picture, where nothing else is said
const AGAIN = 100; // a canvas that does not change is not recorded: it is drawn again
const MOST = 1920; // pixels
const TYPES = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm"];

const typeOf = () =>
  window.MediaRecorder &&
  HTMLCanvasElement.prototype.captureStream &&
  TYPES.find((type) => MediaRecorder.isTypeSupported(type));

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// sheet(): the picture of the step that is on, or a promise of it; count(), go(place): the steps; ended(): of a film that
// stopped. The last picture is the largest.
async function record({ sheet, count, go, each = EACH }, type, told) {
  const pictures = [];
  for (let place = 0; place < count() && !told.stopped; place += 1) {
    go(place);
    told.say(`Drawing ${place + 1} of ${count()}`);
    pictures.push(await drawnSheet(await sheet()));
  }
  const width = Math.max(...pictures.map((each) => each.width));
  const height = Math.max(...pictures.map((each) => each.height));
  const ratio = Math.min(1, MOST / width, MOST / height);
  const even = (length) => 2 * Math.ceil((length * ratio) / 2);
  const canvas = make("canvas", { width: even(width), height: even(height) });
  const context = canvas.getContext("2d");
  const draw = (picture) => {
    context.fillStyle = told.paper;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(picture, 0, 0, picture.width * ratio, picture.height * ratio);
  };
  draw(pictures[0]);
  const recorder = new MediaRecorder(canvas.captureStream(30), { mimeType: type, videoBitsPerSecond: 4e6 });
  const parts = [];
  recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
  const ended = new Promise((resolve) => recorder.addEventListener("stop", resolve));
  recorder.start();
  for (const [place, picture] of pictures.entries()) {
    told.say(`Recording ${place + 1} of ${pictures.length}`);
    const rests = place === pictures.length - 1 ? Math.max(2 * each, 1000) : each;
    for (let left = rests; left > 0 && !told.stopped; left -= AGAIN) {
      draw(picture);
      await wait(AGAIN);
    }
  }
  recorder.stop();
  await ended;
  return new Blob(parts, { type: "video/webm" });
}

// The button; name: the file's, without its ending; colours: the page's.
export function makeFilm({ name, sheet, count, go, colours, each = EACH }) {
  const label = "Save the steps as a film (WebM)";
  const button = make("button", { type: "button", class: "button", "aria-label": label, title: label }, "Film");
  const said = make("span", { class: "note", role: "status" }, "");
  let told = null;
  button.addEventListener("click", async () => {
    const type = typeOf();
    if (!type) {
      said.textContent = "This browser cannot record a film; the pictures can be saved one by one.";
      return;
    }
    if (told) {
      told.stopped = true;
      return;
    }
    told = { stopped: false, paper: colours.of("--card"), say: (text) => (said.textContent = text) };
    button.textContent = "Stop";
    try {
      const film = await record({ sheet, count, go, each }, type, told);
      if (told.stopped) said.textContent = "Stopped: no film was saved.";
      else {
        download(film, `${name}.webm`);
        said.textContent = "";
      }
    } catch (error) {
      said.textContent = `The film could not be recorded: ${error.message}.`;
    }
    told = null;
    button.textContent = "Film";
  });
  return make("span", { class: "film" }, button, said);
}
