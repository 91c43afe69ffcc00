// A part of the page as a sheet of shapes, as it is laid out: its texts, boxes, canvases and drawings. For views that
// have no drawing of their own to be saved.

import { BASELINE, styled, widthOf } from "./save.js";

const MARGIN = 16;
const HEADING = 30;
const clear = /^(transparent|rgba\(.*, 0\))$/;

// element: what is shown; said: { title, name }; colours: the page's.
export function sheetOf(element, { title, name }, colours) {
  const room = element.getBoundingClientRect();
  const font = getComputedStyle(element).fontFamily;
  const [left, top] = [room.left - MARGIN, room.top - MARGIN - HEADING];
  const width = Math.ceil(Math.max(room.width, element.scrollWidth, widthOf(title, 14, true)) + 2 * MARGIN);
  const height = Math.ceil(Math.max(room.height, element.scrollHeight) + 2 * MARGIN + HEADING);
  /** @type {any[]} */
  const shapes = [
    { kind: "box", x: 0, y: 0, width, height, colour: colours.of("--paper") },
    { kind: "text", x: MARGIN, y: MARGIN + 8, text: title, size: 14, bold: true, colour: colours.of("--ink") },
  ];
  const placed = ({ left: x, top: y, width: wide, height: high }) => ({
    x: x - left,
    y: y - top,
    width: wide,
    height: high,
  });
  walk(element, 1);
  return { width, height, shapes, title, name };

  function walk(of, fade) {
    const style = getComputedStyle(of);
    const box = of.getBoundingClientRect();
    if (style.display === "none" || (box.width <= 1 && box.height <= 1)) return;
    const opacity = fade * Number(style.opacity);
    if (opacity === 0) return;
    const seen = style.visibility !== "hidden";
    if (seen) {
      background(style, box, opacity);
      if (of.localName === "svg") {
        shapes.push({ kind: "drawing", ...placed(box), copy: styled(of) });
        return;
      }
      if (of.localName === "canvas") {
        if (of.width > 0 && of.height > 0)
          shapes.push({
            kind: "image",
            ...placed(box),
            address: of.toDataURL(),
            sharp: style.imageRendering === "pixelated",
          });
        return;
      }
    }
    for (const child of of.childNodes) {
      if (child instanceof Element) walk(child, opacity);
      else if (seen && child instanceof Text) write(child, style, opacity);
    }
  }

  // A colour, a bar as long as the size of the background, and a frame or the rules of single sides.
  function background(style, box, opacity) {
    const here = placed(box);
    const rounded = Number.parseFloat(style.borderTopLeftRadius) || 0;
    const fill = clear.test(style.backgroundColor) ? null : style.backgroundColor;
    if (fill) shapes.push({ kind: "box", ...here, colour: fill, opacity, round: rounded });
    const bar = /gradient\([^r]*(rgba?\([^)]*\)|color\([^)]*\))/.exec(style.backgroundImage);
    const [sizes, places] = [style.backgroundSize.split(" "), style.backgroundPosition.split(" ")];
    const [wide, high] = [here.width, here.height].map((whole, i) => lengthOf(sizes[i] ?? "auto", whole));
    if (bar && wide > 0 && high > 0) {
      const [x, y] = places.map((place, i) => lengthOf(place, i ? here.height - high : here.width - wide));
      const at = { x: here.x + x, y: here.y + y, width: wide, height: high };
      shapes.push({ kind: "box", ...at, colour: bar[1], opacity, round: rounded });
    }
    const sides = ["Top", "Right", "Bottom", "Left"].map((side) => ({
      width: style[`border${side}Style`] === "none" ? 0 : Number.parseFloat(style[`border${side}Width`]),
      colour: style[`border${side}Color`],
    }));
    const ends = [
      [here.x, here.y],
      [here.x + here.width, here.y],
      [here.x + here.width, here.y + here.height],
      [here.x, here.y + here.height],
    ];
    if (sides.every(({ width: wide, colour }) => wide > 0 && !clear.test(colour)))
      shapes.push({ kind: "box", ...here, colour: "none", border: sides[0].colour, round: rounded });
    else
      sides.forEach(({ width: wide, colour }, i) => {
        if (wide > 0 && !clear.test(colour))
          shapes.push({ kind: "line", from: ends[i], to: ends[(i + 1) % 4], colour, width: wide, opacity });
      });
  }

  // A text, line by line.
  function write(node, style, opacity) {
    if (!node.data.trim()) return;
    const range = document.createRange();
    range.selectNodeContents(node);
    const whole = [...range.getClientRects()].filter((rect) => rect.width > 0);
    if (whole.length === 0) return;
    const size = Number.parseFloat(style.fontSize);
    const isCut = style.textOverflow === "ellipsis" && style.whiteSpace === "nowrap";
    const lines =
      whole.length === 1 || isCut
        ? [{ text: isCut ? seenOf(node, range, size) : node.data, rect: whole[0] }]
        : linesOf(node, range);
    for (const { text, rect } of lines) {
      const here = placed(rect);
      const plain = style.whiteSpace.startsWith("pre") ? text : text.replace(/\s+/g, " ");
      const upright = style.writingMode.startsWith("vertical");
      shapes.push({
        kind: "text",
        x: upright ? here.x + here.width / 2 + BASELINE * size : here.x,
        y: upright ? here.y + here.height : here.y + here.height / 2,
        turn: upright ? 90 : undefined,
        text: plain.startsWith(" ") && isCollapsed(node) ? plain.slice(1) : plain,
        size,
        font: style.fontFamily === font ? undefined : style.fontFamily,
        colour: style.color,
        bold: Number(style.fontWeight) >= 600,
        opacity: opacity < 1 ? opacity : undefined,
      });
    }
  }
}

// "40%", "1px" or "auto" in pixels.
function lengthOf(said, whole) {
  const number = Number.parseFloat(said);
  return Number.isNaN(number) ? whole : said.endsWith("%") ? (whole * number) / 100 : number;
}

// A text as it is seen where what is too long is cut off.
function seenOf(node, range, size) {
  const { right } = node.parentElement.getBoundingClientRect();
  if (range.getBoundingClientRect().right <= right + 1) return node.data;
  let end = 0;
  for (const sign of node.data) {
    range.setEnd(node, end + sign.length);
    if (range.getBoundingClientRect().right > right - size) break;
    end += sign.length;
  }
  return `${node.data.slice(0, end)}…`;
}

// Whether the space that a text begins with is not laid out.
function isCollapsed(node) {
  const range = document.createRange();
  range.setStart(node, 0);
  range.setEnd(node, 1);
  return range.getBoundingClientRect().width === 0;
}

function linesOf(node, range) {
  const lines = [];
  let at = 0;
  for (const sign of node.data) {
    range.setStart(node, at);
    at += sign.length;
    range.setEnd(node, at);
    const rect = range.getBoundingClientRect();
    const line = lines.at(-1);
    if (rect.width === 0 && line) continue;
    if (line && Math.abs(line.rect.top - rect.top) < 2) line.text += sign;
    else lines.push({ text: sign, rect });
  }
  return lines;
}
