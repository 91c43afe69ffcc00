// The lines of a sentence: one where it fits when it is written somewhat smaller; otherwise lines of about one length, so
// that no word is left alone on the last, and arcs stay short.

const SMALLEST = 0.72; // of the size of its letters
const STEP = 8; // pixels

/**
 * Lays out a sentence: it gets the size of letters, `--fit`, and the width, `--measure`. A field that lies over it gets the
 * same, and room for some letters that are typed before they are drawn. Two words are kept on one line, where some width does.
 * @param {HTMLElement} sentence @param {HTMLElement | null} field @param {HTMLElement[]} words
 */
export function layOut(sentence, field, words) {
  const all = [sentence, field ?? sentence];
  const spare = field ? 3 * Number.parseFloat(getComputedStyle(sentence).fontSize) : 0;
  const lines = /** @type {HTMLElement[]} */ ([...sentence.querySelectorAll(".door-line")]);
  const set = (/** @type {string} */ name, /** @type {string} */ value) => {
    for (const each of all) each.style.setProperty(name, value);
  };
  set("--fit", "1");
  set("--measure", "none");
  const room = lines[0].clientWidth - spare;
  if (room <= 0) return;
  const fit = room / Math.max(...lines.map(lengthOf));
  if (fit >= SMALLEST) return set("--fit", String(Math.min(1, 0.998 * fit)));
  const { height } = sentence.getBoundingClientRect();
  let [low, high] = [room / 3, room];
  while (high - low > STEP) {
    const middle = (low + high) / 2;
    set("--measure", `${middle}px`);
    if (sentence.getBoundingClientRect().height > height) low = middle;
    else high = middle;
  }
  const tops = () => words.map((each) => each.getBoundingClientRect().top);
  const isApart = () => Math.max(...tops()) - Math.min(...tops()) > 4;
  let best = high;
  do set("--measure", `${Math.ceil(best + spare)}px`);
  while (isApart() && (best += STEP) < room);
  if (isApart()) set("--measure", `${Math.ceil(high + spare)}px`);
}

// How long a text is where no line breaks but at its own ends.
function lengthOf(/** @type {HTMLElement} */ line) {
  const range = document.createRange();
  range.selectNodeContents(line);
  line.style.whiteSpace = "pre";
  const { width } = range.getBoundingClientRect();
  line.style.whiteSpace = "";
  return width;
}
