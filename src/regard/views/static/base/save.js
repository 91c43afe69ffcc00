// What a view shows, as a file. A picture is a sheet of shapes, which becomes SVG; a PNG is that SVG, drawn.
//
//   sheet    { width, height, title, name, shapes }; name: the file's, without its ending
//   shapes   { kind: "box", x, y, width, height, colour, opacity?, round?, border?, said? }
//            { kind: "text", x, y, text, size, colour, font?, anchor?, bold?, turn?, opacity? }: y is the middle line;
//              turn: degrees against the clock about (x, y)
//            { kind: "line", from, to, colour, width, opacity?, dashes?, bent?, said? }
//            { kind: "image", x, y, width, height, address, sharp }: what was drawn on a canvas; sharp: with hard pixels
//            { kind: "drawing", x, y, width, height, copy }: an SVG of the page, by styled()
//
// views/_sheet.py draws the same shapes for Python.

import DRAWING from "../drawing.json";
import { makeButton } from "./controls.js";
import { drawn, make } from "./dom.js";

// views/_assets.py says what the rules are of.
export const { fonts: FONTS, baseline: BASELINE, margin: MARGIN, beside: BESIDE } = DRAWING;

const MOST_PIXELS = 16000; // of a canvas, in height or width

// XML cannot hold these, and a lone surrogate is no character.
const clean = (text) => text.toWellFormed().replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
const round = (value) => Number(value.toFixed(3));

const named = (said) => (said ? [drawn("title", {}, clean(said))] : []);
const place = ({ x, y, width, height }) => ({ x: round(x), y: round(y), width: round(width), height: round(height) });

const DRAWN = {
  box: (shape) =>
    drawn(
      "rect",
      { ...place(shape), rx: shape.round, fill: shape.colour, "fill-opacity": shape.opacity, stroke: shape.border },
      ...named(shape.said),
    ),
  text({ x, y, text, size, font, colour, anchor = "start", bold, turn, opacity }) {
    const [atX, atY] = [round(x), round(turn ? y : y + BASELINE * size)];
    return drawn(
      "text",
      {
        x: atX,
        y: atY,
        "font-size": size,
        "font-family": font,
        fill: colour,
        "fill-opacity": opacity,
        "text-anchor": anchor === "start" ? null : anchor,
        "font-weight": bold ? 600 : null,
        transform: turn ? `rotate(${-turn} ${atX} ${atY})` : null,
        "xml:space": "preserve",
      },
      clean(text),
    );
  },
  line({ from, to, colour, width, opacity = 1, dashes = [], bent, said }) {
    const [[x, y], [toX, toY], middle] = [from.map(round), to.map(round), round((from[0] + to[0]) / 2)];
    return drawn(
      "path",
      {
        d: bent ? `M${x} ${y}C${middle} ${y} ${middle} ${toY} ${toX} ${toY}` : `M${x} ${y}L${toX} ${toY}`,
        fill: "none",
        stroke: colour,
        "stroke-width": round(width),
        "stroke-opacity": round(opacity),
        "stroke-dasharray": dashes.join(" ") || null,
      },
      ...named(said),
    );
  },
  image: (shape) =>
    drawn("image", {
      ...place(shape),
      href: shape.address,
      preserveAspectRatio: "none",
      "image-rendering": shape.sharp ? "pixelated" : null,
    }),
  // A copy that has its style written into it, see styled().
  drawing: (shape) => {
    const { copy } = shape;
    for (const [name, value] of Object.entries(place(shape))) copy.setAttribute(name, String(value));
    return copy;
  },
};

// A copy of a drawing with what the style sheet says of it written into it.
const STYLES = [
  ...["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin"],
  ...["stroke-linecap", "paint-order", "opacity"],
];
const WRITTEN = ["font-size", "font-weight", "text-anchor"];
const OWN = { text: WRITTEN, tspan: WRITTEN, circle: ["r"] };

export function styled(drawing) {
  const copy = drawing.cloneNode(true);
  copy.setAttribute("overflow", getComputedStyle(drawing).overflow);
  const copies = copy.querySelectorAll("*");
  drawing.querySelectorAll("*").forEach((each, i) => {
    const style = getComputedStyle(each);
    if (style.display === "none" || style.visibility === "hidden") copies[i].setAttribute("display", "none");
    for (const name of [...STYLES, ...(OWN[each.localName] ?? [])])
      copies[i].setAttribute(name, style.getPropertyValue(name));
  });
  return copy;
}

export function svgText({ width, height, shapes, title }) {
  const root = drawn(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "font-family": FONTS },
    ...named(title),
    ...shapes.map((shape) => DRAWN[shape.kind](shape)),
  );
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(root)}\n`;
}

// The sheet on a canvas; on one that is given, in its size.
export async function drawnSheet(sheet, canvas = null) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(sheet))}`;
  await image.decode();
  const ratio = Math.min(2, MOST_PIXELS / sheet.height, MOST_PIXELS / sheet.width);
  const to =
    canvas || make("canvas", { width: Math.round(sheet.width * ratio), height: Math.round(sheet.height * ratio) });
  to.getContext("2d").drawImage(image, 0, 0, to.width, to.height);
  return to;
}

export function download(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = make("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 20000);
}

// How wide a line of text is.
let pen = null;
export function widthOf(text, size, bold = false) {
  pen = pen || make("canvas").getContext("2d");
  pen.font = `${bold ? "600 " : ""}${size}px ${FONTS}`;
  return pen.measureText(text).width;
}

// The widths of names by the columns that a terminal gives their letters, as views/_picture.py has them: both draw one
// picture, wherever there are which fonts.
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
const cellsOf = (text) =>
  Array.from(text).reduce((sum, sign) => sum + (/[\p{M}\p{Cf}]/u.test(sign) ? 0 : WIDE.test(sign) ? 2 : 1), 0);

export function excerpt(text) {
  const { cells } = DRAWING.name;
  if (cellsOf(text) <= cells) return text;
  let cut = "";
  for (const sign of text) {
    if (cellsOf(cut + sign) > cells - 1) break;
    cut += sign;
  }
  return `${cut.trimEnd()}…`;
}

export const nameWidth = (names) =>
  Math.max(DRAWING.name.least, ...names.map((name) => DRAWING.name.cell * cellsOf(excerpt(name))));

// The least width of a sheet with this title, and with what is said below it.
const { title: TITLE, said: SAID } = DRAWING.heading;
export const titleWidth = (title) =>
  2 * MARGIN + Math.max(TITLE.letter * title.length, widthOf(title, TITLE.size, true));
export const saidWidth = (said) => 2 * MARGIN + SAID.letter * said.length;

export function heading(title, said, colours) {
  return [
    { kind: "text", x: MARGIN, y: TITLE.y, text: title, size: TITLE.size, bold: true, colour: colours.of("--ink") },
    { kind: "text", x: MARGIN, y: SAID.y, text: said, size: SAID.size, colour: colours.of("--soft") },
  ];
}

// Two buttons; picture() gives the sheet, or a promise of it.
export function makeSave(picture) {
  const button = (label, act) => {
    const said = `Save the picture as ${label}`;
    return makeButton(label, async () => act(await picture()), { "aria-label": said, title: said });
  };
  return [
    button("SVG", (sheet) => download(new Blob([svgText(sheet)], { type: "image/svg+xml" }), `${sheet.name}.svg`)),
    button("PNG", async (sheet) => {
      const canvas = await drawnSheet(sheet);
      canvas.toBlob((blob) => blob && download(blob, `${sheet.name}.png`), "image/png");
    }),
  ];
}
