// A word beside one of another text, on their ways through the layers, in one flat picture. Python's form, which says why
// these axes, is tracing/comparison/_movement.py, and tracing/pages/_story.py chooses the words.

import { isRead } from "../base/shares.js";
import { wordVectors } from "./moved.js";

/**
 * @typedef {{ encoded: import("./tokenizer.js").Encoded, run: import("./model.js").Run }} Read a text, and its run
 * @typedef {{ name: string, asked: string, tokens: number[], way: Float64Array[] }} PlacedWord asked: "bank#2", the second
 */

const SMALL = 3; // letters of words that say little, as a rule
const NOTHING = 1e-20; // what is left of a sum of squares by rounding alone
const DOUBLINGS = 24; // of the power to which a matrix is raised: of its directions the largest alone is left

/**
 * A word here beside the same word in the other text, or the one that comes to be most like it.
 * @param {Read} here @param {Read} there
 * @param {number | null} token of the word; null: of the longer words that which has one most like it
 */
export function besideOf(here, there, token) {
  const [mine, theirs] = [here, there].map(placed);
  const asked = mine.filter(({ tokens }) => tokens.includes(token));
  const [some, others] = token === null ? [longer(mine), longer(theirs)] : [asked, theirs];
  const pairs = some.flatMap((one) => {
    const same = theirs.filter(({ name }) => name.toLowerCase() === one.name.toLowerCase());
    return (same.length > 0 ? same : others).map((other) => [one, other]);
  });
  const likeness = pairs.map(([one, other]) => dot(one.way.at(-1), other.way.at(-1)));
  if (pairs.length === 0) return null;
  const [one, other] = pairs[likeness.indexOf(Math.max(...likeness))];
  const layers = here.run.hidden.length - 1;
  return {
    first: one.tokens[0],
    words: [one.asked, other.asked],
    texts: [here, there].map(({ encoded: { text, pair } }) => (pair === null ? text : `${text} | ${pair}`)),
    steps: ["learned", "position", ...one.way.slice(3).map((_, at) => String(at + 1)), `${layers} contextual`],
    ...projected(one.way, other.way),
  };
}

/** @param {PlacedWord[]} words */
function longer(words) {
  const found = words.filter(({ name }) => [...name].length > SMALL);
  return found.length > 0 ? found : words;
}

/** @param {Read} read @returns {PlacedWord[]} the words with a letter or digit, and a token */
function placed({ encoded, run }) {
  const steps = [run.embedding.learned, ...run.hidden].map((rows) => wordVectors(encoded, rows));
  const found = steps[0]
    .map(({ text, tokens }, at) => ({ name: text, tokens, way: steps.map((words) => direction(words[at].vector)) }))
    .filter(({ name }) => isRead(name));
  const isSame = (one) => (other) => other.name.toLowerCase() === one.name.toLowerCase();
  return found.map((each, at) => {
    const before = found.slice(0, at).filter(isSame(each)).length;
    return { ...each, asked: before > 0 ? `${each.name}#${before + 1}` : each.name };
  });
}

// Scaled to length 1, so that distances are those of directions: what cosines say.
function direction(vector) {
  const row = Float64Array.from(vector);
  const length = Math.sqrt(dot(row, row)) || 1;
  return row.map((each) => each / length);
}

/**
 * Two ways in the plane of what they have in common, and of what sets them apart.
 * @param {Float64Array[]} one a vector a step @param {Float64Array[]} other
 */
export function projected(one, other) {
  const middle = one.map((row, step) => row.map((each, i) => (each + other[step][i]) / 2));
  const half = one.map((row, step) => row.map((each, i) => (each - other[step][i]) / 2));
  const centre = middle[0].map((_, i) => middle.reduce((sum, row) => sum + row[i] / middle.length, 0));
  const common = middle.map((row) => row.map((each, i) => each - centre[i]));
  const first = axis([common, half], null);
  const second = axis([half, common], first);
  const last = one.length - 1;
  const turns = [
    [first, common[last], common[0]],
    [second, half[last], null],
  ].map(([along, to, from]) => (dot(along, to) < (from ? dot(along, from) : 0) ? -1 : 1));
  const along = (rows) => rows.map((row) => [first, second].map((each, i) => turns[i] * dot(each, row)));
  const [ways, gaps] = [along(common), along(half)];
  const squares = (rows) => rows.reduce((sum, row) => sum + dot(row, row), 0);
  const total = squares(common) + squares(half);
  const kept = (i) => [...ways, ...gaps].reduce((sum, point) => sum + point[i] ** 2, 0) / (total || 1);
  const apart = squares(half);
  return {
    points: [1, -1].map((sign) => ways.map((way, step) => way.map((each, i) => each + sign * gaps[step][i]))),
    far: half.map((row) => 2 * Math.sqrt(dot(row, row))),
    share: [kept(0), kept(1)],
    apart: apart > NOTHING * total ? gaps.reduce((sum, gap) => sum + gap[1] ** 2, 0) / apart : null,
  };
}

const dot = (one, other) => one.reduce((sum, each, i) => sum + each * other[i], 0);

// The direction in which the first of some rows vary most, across another; of the next where nothing of them is left.
function axis(choices, across) {
  const least = NOTHING * choices.flat().reduce((sum, row) => sum + dot(row, row), 0);
  const without = (row) => {
    const part = across ? dot(row, across) : 0;
    return row.map((each, i) => each - (across ? part * across[i] : 0));
  };
  for (const rows of choices.map((choice) => choice.map(without)))
    if (rows.reduce((sum, row) => sum + dot(row, row), 0) > least) return principal(rows);
  return choices[0][0].map(() => 0);
}

// The largest right singular vector, by powers of R R^T.
function principal(rows) {
  let power = rows.map((row) => rows.map((other) => dot(row, other)));
  for (let i = 0; i < DOUBLINGS; i += 1) {
    const size = Math.max(...power.map((row, at) => row[at]));
    const scaled = power.map((row) => row.map((each) => each / size));
    power = scaled.map((row) => scaled.map((other) => dot(row, other)));
  }
  const [largest] = [...power].sort((a, b) => dot(b, b) - dot(a, a));
  const sum = rows[0].map((_, i) => rows.reduce((total, row, step) => total + largest[step] * row[i], 0));
  const length = Math.sqrt(dot(sum, sum));
  return sum.map((each) => each / length);
}
