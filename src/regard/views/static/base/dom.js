// Elements and words. Text enters the page here only, through textContent.

// make("button", { class: "x", "aria-label": "y", click: act, "--size": 0.5 }, child, "text"): attributes, listeners
// and custom properties. No style attribute: the policy forbids it.
export const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);

// The same for a drawing: "svg", "path", "text".
export const drawn = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name.startsWith("--")) element.style.setProperty(name, String(value));
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

// The namespace of drawings: a name, and no address, so it is not written as one.
const SVG = ["http:", "www.w3.org/2000/svg"].join("//");

export const makeNote = (...parts) => make("p", { class: "note" }, ...parts);

// A part of a view under a title.
export const makeSection = (attributes, title, ...parts) =>
  make("section", attributes, make("h2", { class: "panel-title" }, title), ...parts);

// A token without a single visible character would be an empty box: it is named by its code points.
const INVISIBLE = /^[\p{C}\p{Z}\p{M}]*$/u;
const CONTROL = /[\u0000-\u001f\u007f]/g;
const SIGNS = { "\n": "↵", "\t": "⇥", "\u007f": "␡" };

// A text with a sign for what nobody would see, a blank at an end too: as `visible` in core/wording.py writes it.
export function readable(text) {
  if (text === "") return "(empty)";
  const shown = text
    .replace(/^ +| +$/g, (blanks) => "␣".repeat(blanks.length))
    .replace(CONTROL, (c) => SIGNS[c] ?? String.fromCharCode(0x2400 + c.charCodeAt(0)));
  if (!INVISIBLE.test(shown)) return shown;
  return Array.from(text, (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`).join(" ");
}

// 3.2e-5 as 3.2e-05, the way Python prints it, so that the two can be compared by eye and by search.
export function formatDifference(value) {
  const [digits, exponent] = value.toExponential(1).split("e");
  const power = Math.abs(Number(exponent));
  return `${digits}e${Number(exponent) < 0 ? "-" : "+"}${String(power).padStart(2, "0")}`;
}

// Runs `task(deadline)` in idle time until it returns true; returns a function that cancels it.
export function inIdleTime(task) {
  let handle = 0;
  let cancelled = false;
  const later = window.requestIdleCallback ? (f) => requestIdleCallback(f, { timeout: 500 }) : (f) => setTimeout(f, 16);
  const step = (idle) => {
    if (cancelled) return;
    const left = idle && !idle.didTimeout ? idle.timeRemaining() : 8;
    if (!task(performance.now() + Math.max(2, Math.min(left, 8)))) handle = later(step);
  };
  handle = later(step);
  return () => {
    cancelled = true;
    (window.cancelIdleCallback || clearTimeout)(handle);
  };
}

// act(found, event) on a click on what a selector finds in an element, whose contents come and go.
export function onClicks(element, selector, act) {
  element.addEventListener("click", (event) => {
    const found = event.target.closest(selector);
    if (found) act(found, event);
  });
}

// What a map has by a name, else what is made now; null, which is on its way, is not kept. Beyond `most` all is let go.
export function kept(map, name, made, most = Infinity) {
  if (map.has(name)) return map.get(name);
  const value = made();
  if (value === null) return null;
  if (map.size > most) map.clear();
  map.set(name, value);
  return value;
}

// listener() when an element has another size, until `gone` (see host.js): a page that is no more must not be kept for it.
export function whenResized(element, listener, gone) {
  const observer = new ResizeObserver(() => listener());
  observer.observe(element);
  gone?.addEventListener("abort", () => observer.disconnect());
}

// The same for drawings that are as wide as the element: not where only its height is another, or while it is hidden.
export function whenWider(element, draw, gone) {
  let width = element.clientWidth;
  whenResized(
    element,
    () => {
      if (element.clientWidth === width || element.clientWidth === 0) return;
      width = element.clientWidth;
      draw();
    },
    gone,
  );
}

// A function after which `draw` is called before the next frame, once, however often it is called until then.
export function onceAFrame(draw) {
  let frame = 0;
  return () => {
    if (frame) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      draw();
    });
  };
}
