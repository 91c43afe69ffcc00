// What one row of a picture stands for: a token, or a word with all its pieces.
//
// A unit is named by its first token, so that arrays over tokens serve for words too: what a query looks at in a
// word is the sum over its pieces, and a word looks as its pieces do on average. Both keep a row's sum at 1.

import { make, readable } from "./dom.js";

const NAMED = 5; // words of which a note speaks

export class Units {
  // tokens, words: of one side, from the row source; byWords: words in place of pieces.
  constructor(tokens, words, byWords) {
    this.tokens = tokens;
    // { first, last (included), text, special, sequence, sink, only, unknown, mark, continues, continued }
    this.all = [];
    this.of = new Int32Array(tokens.length); // the place in `all` of each token's unit
    tokens.forEach((token, i) => {
      const above = tokens[i - 1];
      const joined =
        Boolean(above) && token.word !== null && above.word === token.word && above.sequence === token.sequence;
      const unit = this.all[this.all.length - 1];
      if (joined && byWords) {
        unit.last = i;
        unit.text = words[token.word] ?? unit.text + bare(token);
        unit.unknown ??= unknownOf(token);
      } else {
        const isWord = byWords && token.word !== null && !token.unknown; // [UNK] may stand for several words
        const text = isWord ? (words[token.word] ?? shownText(token)) : shownText(token);
        const { special, sequence, sink, only } = token;
        this.all.push({
          first: i,
          last: i,
          text,
          special,
          sequence,
          sink: Boolean(sink),
          only,
          unknown: unknownOf(token),
          mark: "",
          continues: joined,
          continued: false,
        });
        if (joined) {
          unit.continued = true;
          if (marked(token)) Object.assign(this.all[this.all.length - 1], { mark: "##", text: bare(token) });
        }
      }
      this.of[i] = this.all.length - 1;
    });
  }

  // The unit that a token is in.
  at(token) {
    return this.all[this.of[token]];
  }

  // Whether another unit has the same text: then its place is said too.
  isRepeated(token) {
    if (!this.counts) {
      this.counts = new Map();
      for (const { text } of this.all) this.counts.set(text, (this.counts.get(text) || 0) + 1);
    }
    return this.counts.get(this.at(token).text) > 1;
  }

  name(token) {
    const { mark, text, unknown } = this.at(token);
    return unknown ? `${unknown} ${readable(text)}` : readable(mark + text); // first, for a long one is cut off
  }

  // A unit's text as an element, isolated so that a right-to-left token cannot reorder its neighbours.
  element(token) {
    const { mark, text, unknown } = this.at(token);
    const bdi = make("bdi", { dir: "auto", class: "text" });
    if (mark) bdi.append(make("span", { class: "mark" }, mark));
    if (!unknown) {
      bdi.append(readable(text));
      return bdi;
    }
    bdi.classList.add("unknown");
    bdi.append(
      make("span", { class: "surface" }, readable(text)),
      make("span", { class: "read-as", "aria-hidden": "true" }, unknown),
      make("span", { class: "sr-only" }, "unknown to the model"),
    );
    return bdi;
  }
}

// WordPiece writes a piece that goes on as "##ing": people read that. Of other signs for it the surface is shown, and
// of a part of a character its bytes.
export const shownText = (token) => token.bytes ?? (marked(token) ? token.text : (token.surface ?? token.text));
const marked = (token) => token.text.startsWith("##") && token.text.length > 2;
/**
 * What the vocabulary lacks, and what the model has read for it: [UNK], or the bytes of a character; "" where there is
 * nothing. A word of several pieces, or of digits one by one, is read in full.
 * @param {{ text: string, surface?: string, bytes?: string, unknown?: boolean }[]} tokens
 */
export function notKnown(tokens) {
  const unknown = tokens.filter((each) => each.unknown);
  const lacking = unknown.map(({ surface, text }) => surface ?? text);
  const apart = tokens.filter((each) => each.bytes).map(({ surface, text }) => surface ?? text);
  return [
    lacking.length > 0 ? `The model does not know ${some(lacking)}: it reads ${unknown[0].text} there.` : "",
    apart.length > 0 ? `The model has no token for ${some(apart)}: it reads byte by byte.` : "",
  ]
    .filter(Boolean)
    .join(" ");
}

// The first words of many, none of them twice.
function some(all) {
  const words = [...new Set(all.map(readable))];
  const told = words.slice(0, NAMED).map((word) => (word.length > 32 ? `${word.slice(0, 31)}…` : word));
  return told.join(", ") + (words.length > NAMED ? ` and ${words.length - NAMED} more` : "");
}

// What the model has read in the place of a token that its vocabulary lacks: "[UNK]"; undefined of any other.
const unknownOf = ({ unknown, text }) => (unknown ? text : undefined);
const bare = (token) => token.surface ?? (marked(token) ? token.text.slice(2) : token.text); // as the text has it

// The numbers that each token of some units has, added up; null while some are not there.
export function totalOf(units, read) {
  let total = null;
  for (const { first, last } of units) {
    for (let token = first; token <= last; token += 1) {
      const numbers = read(token);
      if (!numbers) return null;
      if (!total) total = Float64Array.from(numbers);
      else for (let i = 0; i < total.length; i += 1) total[i] += numbers[i];
    }
  }
  return total;
}

// Their mean.
export function meanOf(units, read) {
  const count = units.reduce((sum, { first, last }) => sum + last - first + 1, 0);
  return totalOf(units, read)?.map((each) => each / count) ?? null;
}

// Weights over key tokens to weights over key units: their sums, each at the unit's first token.
export function sumUnits(weights, units, out = new Float64Array(weights.length)) {
  if (units.all.length === weights.length) {
    out.set(weights);
    return out;
  }
  out.fill(0);
  for (const { first, last } of units.all) for (let i = first; i <= last; i += 1) out[first] += weights[i];
  return out;
}

// What query tokens give, to what query units give: their means.
export function meanUnits(weights, units) {
  const out = sumUnits(weights, units);
  for (const { first, last } of units.all) out[first] /= last - first + 1;
  return out;
}
