// What each head does in one text: the names of `regard heads`. Python's form, with the formulas, is tracing/patterns;
// the patterns themselves come from there (tracing/pages/_names.py).

import { Draws } from "./draws.js";

/**
 * @typedef {object} Pattern
 * @property {string} name
 * @property {string} detail
 * @property {string} says
 * @property {number} tail the share of the resamples below the low end of the interval
 * @property {{ offset?: number, occurrence?: number, sink?: true, broadcast?: number }} rule
 *
 * @typedef {object} NamingFacts
 * @property {Pattern[]} patterns
 * @property {{ one: string, few: string, many: string }} said
 * @property {number} most weights that are read for names
 * @property {number} threshold @property {number} resamples @property {number} fewest
 * @property {{ state: string, inc: string }} draws
 *
 * @typedef {{ ids: number[], special: boolean[], marks: boolean[] }} Text marks: which tokens are punctuation
 * @typedef {{ query: number, keys: number[], even: number }} Row a query that counts, and its keys
 * @typedef {{ name: string, detail?: string, effect: number }} Name
 * @typedef {{ queries: Int32Array, masses: Float64Array, evens: Float64Array, habits: Float64Array }} Measured rows
 */

const NEAREST = 8; // occurrences of a token that count

/** Which tokens show nothing but punctuation, as is_punctuation says. @param {import("./tokenizer.js").Encoded} encoded */
export function punctuation({ tokens, words }) {
  const isSpelled = (/** @type {number | null} */ word) => word !== null && /[\p{L}\p{N}]/u.test(words[word] ?? "");
  return tokens.map(({ special, surface, word }) => !special && !isSpelled(word) && /^\p{P}+$/u.test(surface));
}

export class Naming {
  /** @param {NamingFacts} facts @param {boolean} causal */
  constructor(facts, causal) {
    this.facts = facts;
    this.causal = causal;
    this.draws = new Draws(facts.draws);
  }

  /** @param {Text} text @param {number} heads of all layers */
  of(text, heads) {
    return heads * text.ids.length ** 2 > this.facts.most ? null : new TextNaming(this, text);
  }

  /** What the page says of its names. @param {TextNaming | null} text null where it is too long */
  told(text) {
    const { said, patterns } = this.facts;
    if (!text) return { said: said.many, patterns: [] };
    const says = new Map(patterns.map((each) => [each.name, each.says]));
    return { said: text.isTold ? said.one : said.few, patterns: [...says].map(([name, of]) => ({ name, says: of })) };
  }
}

class TextNaming {
  /** @param {Naming} naming @param {Text} text */
  constructor({ facts, causal, draws }, { ids, special, marks }) {
    const count = ids.length;
    this.facts = facts;
    this.count = count;
    this.causal = causal;
    this.times = draws.first(count * facts.resamples);
    this.once = new Uint8Array(count).fill(1);
    this.isTold = false;
    const isFirst = (/** @type {number} */ at) => at === 0 && (causal || special[0]);
    const isMark = (/** @type {number} */ at) => special[at] || marks[at];
    /** The parts of the delimiter sink. @type {Record<string, (at: number) => boolean>} */
    this.parts = {
      first: (at) => isFirst(at) && isMark(at),
      special: (at) => special[at] && !isFirst(at),
      punctuation: (at) => marks[at] && !special[at] && !isFirst(at),
      "first word": (at) => isFirst(at) && !isMark(at),
    };
    const places = Array.from({ length: count }, (_, at) => at);
    const sink = places.filter((at) => Object.values(this.parts).some((isOf) => isOf(at)));
    this.queries = places.filter((at) => !special[at]);
    this.plain = this.queries.filter((at) => !sink.includes(at));
    this.rows = facts.patterns.map(({ rule }) => {
      if (rule.broadcast) return null; // of each head, others
      if (rule.sink) return this.counted(this.plain, () => sink);
      if (rule.offset !== undefined) return this.counted(this.queries, (at) => [at + (rule.offset ?? 0)]);
      return this.counted(this.queries, (at) => this.besideOccurrences(ids, special, at, rule.occurrence ?? 0));
    });
  }

  /** How many keys a query may see. @param {number} query */
  seen(query) {
    return this.causal ? query + 1 : this.count;
  }

  /** The rows that say something: they may see a key of the pattern, and others too.
   * @param {number[]} queries @param {(query: number) => number[]} keysOf @returns {Row[]} */
  counted(queries, keysOf) {
    return queries.flatMap((query) => {
      const seen = this.seen(query);
      const keys = keysOf(query).filter((key) => key >= 0 && key < seen);
      return keys.length > 0 && keys.length < seen ? [{ query, keys, even: keys.length / seen }] : [];
    });
  }

  /** @param {number[]} ids @param {boolean[]} special @param {number} place @param {number} step */
  besideOccurrences(ids, special, place, step) {
    if (special[place]) return [];
    const found = ids.flatMap((id, at) =>
      id === ids[place] && at !== place && (!this.causal || at < place) ? [at] : [],
    );
    found.sort((a, b) => Math.abs(a - place) - Math.abs(b - place) || a - b);
    return found.slice(0, NEAREST).flatMap((at) => (at + step !== place ? [at + step] : []));
  }

  /** @param {Float64Array} weights of one head, row by row @returns {Name[]} strongest first */
  head(weights) {
    const { count, facts } = this;
    const received = [new Float64Array(count), new Float64Array(count)]; // from the rows at even places, and at odd ones
    for (let at = 0; at < weights.length; at += 1) received[Math.floor(at / count) % 2][at % count] += weights[at];
    /** @type {Map<string, Name>} */
    const found = new Map();
    facts.patterns.forEach(({ name, detail, rule, tail }, number) => {
      const rows = this.rows[number] ?? this.shared(received[0], rule.broadcast ?? 0);
      if (rows.length < facts.fewest) return;
      this.isTold = true;
      const measured = this.measured(rows, weights, received, Boolean(rule.sink || rule.broadcast));
      const effect = effectOf(measured, this.once, 0);
      // The low end is never above the effect itself: most heads need no resamples.
      if (effect <= Math.max(facts.threshold, found.get(name)?.effect ?? 0)) return;
      if (!this.isSure(measured, tail)) return;
      const said = rule.sink ? this.partOf(rows, weights) : detail;
      found.set(name, { name, ...(said ? { detail: said } : {}), effect: Math.round(1e4 * effect) / 1e4 });
    });
    return [...found.values()].sort((a, b) => b.effect - a.effect);
  }

  /** What the queries at odd places give to the tokens that those at even places give most.
   * @param {Float64Array} received @param {number} most */
  shared(received, most) {
    const chosen = [...this.plain].sort((a, b) => received[b] - received[a]).slice(0, most);
    const odd = this.queries.filter((query) => query % 2 === 1 && !chosen.includes(query));
    return this.counted(odd, () => chosen);
  }

  /** Each row's mass, what attending evenly would give, and what the head's other rows give.
   * @param {Row[]} rows @param {Float64Array} weights @param {Float64Array[]} received @param {boolean} isShared
   * @returns {Measured} */
  measured(rows, weights, [ofEven, ofOdd], isShared) {
    const numbers = () => new Float64Array(rows.length);
    const found = { queries: new Int32Array(rows.length), masses: numbers(), evens: numbers(), habits: numbers() };
    rows.forEach(({ query, keys, even }, row) => {
      let [mass, habit] = [0, 0];
      for (const key of keys) {
        const weight = weights[query * this.count + key];
        mass += weight;
        const others = (this.causal ? this.count - key : this.count) - 1;
        habit += others > 0 ? (ofEven[key] + ofOdd[key] - weight) / others : 1 / this.seen(query);
      }
      found.queries[row] = query;
      found.masses[row] = mass;
      found.evens[row] = even;
      found.habits[row] = isShared ? even : habit;
    });
    return found;
  }

  /** Whether the low end of an effect's interval, by a bootstrap over queries, is above the threshold.
   * @param {Measured} measured @param {number} tail */
  isSure(measured, tail) {
    const { resamples, threshold } = this.facts;
    const effects = new Float64Array(resamples);
    let [found, below] = [0, 0];
    for (let resample = 0; resample < resamples; resample += 1) {
      const effect = effectOf(measured, this.times, resample * this.count);
      if (Number.isNaN(effect)) continue;
      if (effect <= threshold) below += 1;
      if (below > tail * (resamples - 1) + 1) return false; // however many of the others are above
      effects[found] = effect;
      found += 1;
    }
    const sorted = effects.subarray(0, found).sort();
    const at = tail * (found - 1);
    const place = Math.floor(at);
    const above = sorted[Math.min(place + 1, found - 1)];
    return sorted[place] + (at - place) * (above - sorted[place]) > threshold;
  }

  /** The part of the sink that gets more than the others together, if one does.
   * @param {Row[]} rows @param {Float64Array} weights */
  partOf(rows, weights) {
    const shares = Object.entries(this.parts).map(([name, isOf]) => ({ name, share: this.sumOf(rows, weights, isOf) }));
    const total = shares.reduce((sum, { share }) => sum + share, 0);
    return shares.find(({ share }) => share > total / 2)?.name ?? "";
  }

  /** @param {Row[]} rows @param {Float64Array} weights @param {(key: number) => boolean} isOf */
  sumOf(rows, weights, isOf) {
    let sum = 0;
    for (const { query, keys } of rows) for (const key of keys) if (isOf(key)) sum += weights[query * this.count + key];
    return sum;
  }
}

/** Mean of mass, less the larger of the means of `even` and `habit`; NaN where nothing counts.
 * @param {Measured} measured @param {Uint8Array} times how often each query counts, from `start` on @param {number} start */
function effectOf({ queries, masses, evens, habits }, times, start) {
  let [counted, mass, even, habit] = [0, 0, 0, 0];
  for (let row = 0; row < queries.length; row += 1) {
    const drawn = times[start + queries[row]];
    counted += drawn;
    mass += drawn * masses[row];
    even += drawn * evens[row];
    habit += drawn * habits[row];
  }
  return (mass - Math.max(even, habit)) / counted;
}
