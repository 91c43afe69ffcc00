// Which words two texts share: their longest list of words in common, in the order of both.

/** @param {string[]} one @param {string[]} other @returns {[number, number][]} their places in the one and in the other */
export function partnersOf(one, other) {
  const [rows, columns] = [one.length, other.length];
  // How long the list is from each pair of places on.
  const longest = new Uint16Array((rows + 1) * (columns + 1));
  const same = (/** @type {number} */ a, /** @type {number} */ b) => one[a].toLowerCase() === other[b].toLowerCase();
  const at = (/** @type {number} */ a, /** @type {number} */ b) => longest[a * (columns + 1) + b];
  for (let a = rows - 1; a >= 0; a -= 1) {
    for (let b = columns - 1; b >= 0; b -= 1) {
      longest[a * (columns + 1) + b] = same(a, b) ? at(a + 1, b + 1) + 1 : Math.max(at(a + 1, b), at(a, b + 1));
    }
  }
  /** @type {[number, number][]} */
  const pairs = [];
  for (let [a, b] = [0, 0]; a < rows && b < columns; ) {
    if (same(a, b)) {
      pairs.push([a, b]);
      a += 1;
      b += 1;
    } else if (at(a + 1, b) >= at(a, b + 1)) a += 1;
    else b += 1;
  }
  return pairs;
}
