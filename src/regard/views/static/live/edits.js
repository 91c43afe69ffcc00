// What a reader changes in a pass: heads that are switched off, weights that are dragged.

/** @typedef {{ layer: number, head: number, query: number, key: number, value: number }} Dragged */

// What stands in a score for a weight of 0, and for the scores of all others where nothing is left for them.
const NOTHING = 200;

/**
 * Gives some weights of a row the values they were dragged to; the others keep their proportions and share what is
 * left of 1. In Python: regard.Write("weights", ...), as docs/howto/views_live.md shows.
 * @param {Float64Array} row the weights of one query, changed in place
 * @param {{ key: number, value: number }[]} changes
 * @param {number} [count] how many of the row's keys the query may see
 * @returns {number[]} what added to the scores of these keys does the same
 */
export function drag(row, changes, count = row.length) {
  let given = 0;
  let others = 0;
  const before = changes.map(({ key }) => row[key]);
  for (const { key, value } of changes) {
    if (!(key >= 0 && key < count)) throw new RangeError(`The query cannot see token ${key}: its weight stays 0.`);
    if (!(value >= 0 && value <= 1)) throw new RangeError(`A weight lies between 0 and 1; got ${value}.`);
    given += value;
    row[key] = 0;
  }
  if (given > 1 + 1e-9) throw new RangeError(`The dragged weights of a row are at most 1 together; got ${given}.`);
  for (let key = 0; key < count; key += 1) others += row[key];
  const left = Math.max(0, 1 - given);
  if (others === 0 && left > 1e-9) throw new RangeError("There is no other word to take the rest of this row.");
  for (let key = 0; key < count; key += 1) row[key] *= others === 0 ? 0 : left / others;
  for (const { key, value } of changes) row[key] = value;
  const less = left > 0 && others > 0 ? Math.min(NOTHING, Math.log(others / left)) : NOTHING;
  return changes.map(({ value }, i) =>
    value === 0 ? -NOTHING : Math.log(value / Math.max(before[i], Number.MIN_VALUE)) + less,
  );
}

/**
 * The changes of each row of one head, by its query.
 * @param {Dragged[]} weights
 * @param {number} layer
 * @param {number} head
 * @returns {Map<number, Dragged[]>}
 */
export function rowsOf(weights, layer, head) {
  /** @type {Map<number, Dragged[]>} */
  const rows = new Map();
  for (const each of weights) {
    if (each.layer !== layer || each.head !== head) continue;
    rows.set(each.query, [...(rows.get(each.query) ?? []), each]);
  }
  return rows;
}
