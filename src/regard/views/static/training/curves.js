// Curves over the traced steps, which stand at equal distances: a small one under each head, larger ones with an axis.

import { drawn, make } from "../base/dom.js";
import { stepSaid, stepsOf } from "../base/training_bar.js";

const EDGE = 3; // pixels that the end of a line needs

// Where places and values lie: places from the left to the right, values from `least` below to `most` above.
function fitted({ width, height, left = EDGE, below = EDGE, count, least, most }) {
  const [wide, high] = [width - left - EDGE, height - below - EDGE];
  const span = most - least || 1;
  return {
    x: (place) => left + (count > 1 ? (place / (count - 1)) * wide : 0),
    y: (value) => EDGE + high * (1 - (value - least) / span),
  };
}

// A line that is broken where there is no number.
export function lineOf(values, { x, y }) {
  let open = false;
  return values
    .map((value, place) => {
      const sign = open ? "L" : "M";
      open = value !== null;
      return open ? `${sign}${x(place).toFixed(1)} ${y(value).toFixed(1)}` : "";
    })
    .join("");
}

/**
 * A curve without axes, and a line where the step is that is on; since: a place that is marked, or null.
 * @returns {{ element: SVGElement, turn: (at: number) => void }}
 */
export function makeSpark({ values, least, most, width, height, since }) {
  const at = fitted({ width, height, count: values.length, least, most });
  const cursor = drawn("path", { class: "curve-cursor" });
  const point = drawn("circle", { r: 2.5, class: "curve-point" });
  const element = drawn(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "spark", "aria-hidden": "true" },
    cursor,
    drawn("path", { d: lineOf(values, at), class: "curve" }),
    ...(since === null ? [] : [drawn("path", { d: flag(at.x(since), height), class: "curve-since" })]),
    point,
  );
  const turn = (place) => {
    const x = at.x(place);
    cursor.setAttribute("d", `M${x.toFixed(1)} 0V${height}`);
    const value = values[place];
    point.toggleAttribute("hidden", value === null);
    if (value === null) return;
    point.setAttribute("cx", x.toFixed(1));
    point.setAttribute("cy", at.y(value).toFixed(1));
  };
  return { element, turn };
}

// A small triangle on the lower edge.
const flag = (x, height) => `M${(x - 4).toFixed(1)} ${height}h8l-4 -6z`;

const LEFT = 44; // pixels for the numbers at the side
const BELOW = 18;

// Which places have their step written below: as many as there is room for.
function ticks(source, width) {
  const count = stepsOf(source).length;
  const most = Math.max(2, Math.min(count, Math.floor(width / 90)));
  return Array.from({ length: most }, (_, i) => Math.round((i * (count - 1)) / (most - 1)));
}

/**
 * Curves with an axis, through which one can go by a click; drawn anew at another size or step.
 * @param {{ source: any, state: any, label: string, height: number, digits?: number,
 *   curves: () => { values: (number | null)[], of: string, said: string, on: boolean }[],
 *   range: () => [number, number], marks?: () => { place: number, said: string }[], choose?: (of: string) => void }} what
 *   curves: those that are `on` lie above the others; of: what choose() is told by a click on one
 */
export function makeChart({ source, state, label, height, digits = 1, curves, range, marks = () => [], choose }) {
  const element = make("div", { class: "chart" });
  let at = null;
  const draw = () => {
    const width = Math.max(240, element.clientWidth || 240);
    const [least, most] = range();
    const count = stepsOf(source).length;
    at = fitted({ width, height, left: LEFT, below: BELOW, count, least, most });
    const sorted = curves().sort((a, b) => Number(a.on) - Number(b.on));
    const on = state.values.at;
    const floor = height - BELOW;
    const texts = ticks(source, width).map((place, i, all) =>
      drawn(
        "text",
        {
          x: at.x(place),
          y: height - 4,
          class: "curve-tick",
          "text-anchor": i === 0 ? "start" : i === all.length - 1 ? "end" : "middle",
        },
        stepsOf(source)[place].toLocaleString("en"),
      ),
    );
    // Two ends that differ are written differently.
    const written = [digits, 2, 3].find((some) => least.toFixed(some) !== most.toFixed(some)) ?? digits;
    const sides = [least, most].map((value) =>
      drawn(
        "text",
        { x: LEFT - 6, y: at.y(value) + (value === most ? 9 : 0), class: "curve-tick", "text-anchor": "end" },
        value.toFixed(written),
      ),
    );
    const points = sorted
      .filter(({ values, on: chosen }) => chosen && values[on] !== null)
      .map(({ values }) => drawn("circle", { cx: at.x(on), cy: at.y(values[on]), r: 4, class: "curve-point" }));
    element.replaceChildren(
      drawn(
        "svg",
        { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
        drawn("path", { d: `M${LEFT} ${EDGE}V${floor}H${width - EDGE}`, class: "curve-axis" }),
        drawn("path", { d: `M${at.x(on).toFixed(1)} 0V${floor}`, class: "curve-cursor" }),
        ...sorted.map(({ values, of, said, on: chosen }) =>
          drawn(
            "path",
            { d: lineOf(values, at), class: chosen ? "curve on" : "curve", "data-of": of },
            drawn("title", {}, said),
          ),
        ),
        ...marks().map(({ place, said }) =>
          drawn(
            "path",
            { d: flag(at.x(place), floor), class: "curve-since" },
            drawn("title", {}, `${said}, ${stepSaid(source, place)}`),
          ),
        ),
        ...points,
        ...texts,
        ...sides,
      ),
    );
  };
  // A press on a curve chooses it; anywhere, also while it is dragged, it goes to the step.
  const go = (event) => {
    const box = element.getBoundingClientRect();
    const places = stepsOf(source).map((_, place) => Math.abs(at.x(place) - (event.clientX - box.left)));
    state.set({ at: places.indexOf(Math.min(...places)), hover: null });
  };
  element.addEventListener("pointerdown", (event) => {
    const of = event.target.dataset?.of;
    if (of && choose) choose(of);
    else go(event);
  });
  element.addEventListener("pointermove", (event) => {
    if (event.buttons === 1 && event.pointerType !== "touch") go(event);
  });
  return { element, draw };
}
