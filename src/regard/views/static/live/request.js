// What may be asked of a live model.

/**
 * @typedef {object} Request
 * @property {number[]} ids
 * @property {number[]} [types] token types, of a pair; 0 where left out
 * @property {[number, number][]} [off] heads switched off, [layer, head]: their results are 0
 * @property {Dragged[]} [weights]
 * @property {number[]} [unseen] tokens that no other may look at, in any head
 * @property {number[]} [predict] positions of which the head says what it expects there
 * @property {boolean[]} [special] tokens that the model added, for the statistics
 * @property {boolean[]} [marks] tokens that are punctuation, for the names of heads
 * @property {number[]} [units] the word of each token, for the link to open on; without it there is none
 * @property {number[]} [ranks] how much each word says
 * @property {number[]} [about] words that the page opens on, [] for any; and among which it looks, likewise
 * @property {number[]} [among]
 *
 * @typedef {import("./edits.js").Dragged} Dragged
 */

/**
 * @param {Request} request @param {import("./model.js").Description} description
 * @returns {Required<Request>} with what is left out filled in
 * @throws {RangeError} in words, for what cannot be run
 */
export function checked(
  {
    ids,
    types = [],
    off = [],
    weights = [],
    unseen = [],
    predict = [],
    special = [],
    marks = [],
    units = [],
    ranks = [],
    about = [],
    among = [],
  },
  description,
) {
  const { vocabulary, positions, layers, head } = description;
  if (ids.length < 1 || ids.length > positions)
    throw new RangeError(`The model reads 1 to ${positions} tokens; got ${ids.length}.`);
  const odd = ids.find((id) => !(Number.isInteger(id) && id >= 0 && id < vocabulary));
  if (odd !== undefined) throw new RangeError(`A token is a number from 0 to ${vocabulary - 1}; got ${odd}.`);
  for (const [layer, of] of [...off, ...weights.map(({ layer, head: each }) => [layer, each])]) {
    if (!layers[layer] || !(of >= 0 && of < layers[layer].heads))
      throw new RangeError(`There is no head ${layer}.${of}.`);
  }
  for (const { query } of weights)
    if (!(query >= 0 && query < ids.length)) throw new RangeError(`There is no token ${query}.`);
  if (predict.length > 0 && !head) throw new RangeError("This model has no language-model head: it says no next word.");
  return {
    ids,
    types: ids.map((_, at) => types[at] ?? 0),
    special: ids.map((_, at) => special[at] ?? false),
    marks: ids.map((_, at) => marks[at] ?? false),
    units,
    ranks,
    about,
    among,
    off,
    weights,
    unseen,
    predict,
  };
}
