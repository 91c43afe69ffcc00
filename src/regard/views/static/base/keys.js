// Keys in a list or a grid that is one stop for Tab: arrows, Home and End move in it.

// act(key, event) says whether the key was meant for it. With Alt, Ctrl or Meta it is the browser's own.
// gone: aborted when the element outlives whoever listens (see host.js).
export function onKeys(element, act, gone = undefined) {
  const listener = (event) => {
    if (!event.altKey && !event.ctrlKey && !event.metaKey && act(event.key, event)) event.preventDefault();
  };
  element.addEventListener("keydown", listener, { signal: gone });
}

// The one stop for Tab among some elements: a function that makes it another of them, or none.
export function makeStop() {
  let stop = null;
  return (element) => {
    if (stop) stop.tabIndex = -1;
    stop = element ?? null;
    if (stop) stop.tabIndex = 0;
  };
}

export const DOWN = { ArrowDown: 1, ArrowUp: -1 };
export const ACROSS = { ArrowRight: 1, ArrowLeft: -1 };

// Where a key leads from place `at` of a list; undefined for other keys.
// steps: how far each goes, such as DOWN; round: whether the last is followed by the first.
export function placeIn(count, at, key, steps, round = false) {
  const to = key === "Home" ? 0 : key === "End" ? count - 1 : key in steps ? at + steps[key] : undefined;
  if (to === undefined) return undefined;
  return round ? (to + count) % count : Math.max(0, Math.min(count - 1, to));
}

// Where a key leads from a cell among lines of cells: past those that cannot be chosen; from the end of a line to the
// next one; up and down to the nearest cell of a line. The cell itself where there is none; undefined for other keys.
export function cellIn(lines, cell, key, open = (_cell) => true) {
  const row = lines.findIndex((line) => line.includes(cell));
  const line = lines[row];
  const column = line.indexOf(cell);
  const apart = (other) => Math.abs(other.column - column);
  const nearest = (some) => {
    const cells = some.map((each) => each.map((one, at) => ({ one, column: at })).filter(({ one }) => open(one)));
    return cells.find(({ length }) => length > 0)?.reduce((best, each) => (apart(each) < apart(best) ? each : best))
      .one;
  };
  const all = lines.flat();
  const at = all.indexOf(cell);
  const to = {
    ArrowRight: () => all.slice(at + 1).find(open),
    ArrowLeft: () => all.slice(0, at).findLast(open),
    ArrowDown: () => nearest(lines.slice(row + 1)),
    ArrowUp: () => nearest(lines.slice(0, row).reverse()),
    Home: () => line.find(open),
    End: () => line.findLast(open),
  }[key];
  return to && (to() ?? cell);
}
