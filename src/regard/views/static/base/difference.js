// The difference of two runs as a row source: the weights of the second less those of the first, over the tokens that
// both have. Of two texts the tokens are merged as in a diff; what only one of them has has no partner, and no number.

export class DifferenceSource {
  // one, other: the row sources of the two; compared: the page's facts of both (views/_difference.py).
  constructor(one, other, compared) {
    this.one = one;
    this.other = other;
    this.compared = compared;
    this.kinds = Object.keys(compared.kinds);
    this.facts = {
      ...one.facts,
      compared,
      difference: one.facts.difference + other.facts.difference,
      every: Math.max(one.facts.every, other.facts.every),
      leftOut: null,
      check: false, // of a run, and this is none
    };
    this.merged = {};
    for (const kind of this.kinds) {
      const { queries, keys } = compared.kinds[kind];
      this.merged[kind] = { query: this.merge(kind, "query", queries), key: this.merge(kind, "key", keys) };
    }
  }

  // The tokens of both sides in order, and where each is in the one and in the other; null where it is not.
  merge(kind, side, pairs) {
    const both = [this.one, this.other].map((source) => source.tokens(kind, side));
    const sinks = both.map((tokens) => tokens.findIndex(({ sink }) => sink));
    const lists = both.map((tokens) => tokens.filter(({ sink }) => !sink));
    const same = pairs.length === lists[0].length && pairs.length === lists[1].length;
    const tokens = [];
    const places = [];
    const next = [0, 0];
    const push = (token, at, more = {}) => {
      tokens.push({ ...token, ...more, word: null });
      places.push(at);
    };
    const upTo = (ends) => {
      for (const i of [0, 1]) {
        for (; next[i] < ends[i]; next[i] += 1)
          push(lists[i][next[i]], i === 0 ? [next[i], null] : [null, next[i]], { only: i });
      }
    };
    for (const [a, b] of pairs) {
      upTo([a, b]);
      push(lists[0][a], [a, b]);
      next[0] = a + 1;
      next[1] = b + 1;
    }
    upTo(lists.map(({ length }) => length));
    if (sinks.some((at) => at >= 0))
      push(
        both.flat().find(({ sink }) => sink),
        sinks.map((at) => (at < 0 ? null : at)),
      );
    const words = this.nameWords(
      tokens,
      places,
      lists,
      [this.one, this.other].map((source) => source.words(kind, side)),
    );
    return { tokens, places, same, words };
  }

  // The words of the merged tokens, whose numbers are written into these: one that only one text has, and one whose
  // pieces are the partners of all pieces of a word of the other. Of a word of which the other has a part alone,
  // the pieces stay what they are.
  nameWords(tokens, places, lists, words) {
    const wordAt = (i, place) => (place === null || !lists[i][place] ? null : lists[i][place].word);
    const pieces = [new Map(), new Map()]; // of each text, word to the places of its pieces
    places.forEach((at, place) =>
      at.forEach((own, i) => {
        const word = wordAt(i, own);
        if (word !== null) pieces[i].set(word, [...(pieces[i].get(word) || []), place]);
      }),
    );
    const named = [];
    pieces.forEach((ofText, i) =>
      ofText.forEach((members, word) => {
        const others = members.map((place) => places[place][1 - i]);
        const alone = others.every((other) => other === null);
        const partner = wordAt(1 - i, others[0]);
        const whole =
          partner !== null &&
          others.every((other) => wordAt(1 - i, other) === partner) &&
          pieces[1 - i].get(partner).length === members.length;
        if (!alone && !(whole && i === 0)) return;
        for (const place of members) tokens[place].word = named.length;
        named.push(words[i][word]);
      }),
    );
    return named;
  }

  layers(kind) {
    return this.one.layers(kind);
  }

  heads(kind, layer) {
    return this.one.heads(kind, layer);
  }

  holds(kind, layer, head) {
    return this.one.holds(kind, layer, head) && this.other.holds(kind, layer, head);
  }

  thumbnail() {
    return null;
  }

  tokens(kind, side) {
    return this.merged[kind][side].tokens;
  }

  words(kind, side) {
    return this.merged[kind][side].words;
  }

  pair(kind) {
    return this.merged[kind].query.same && this.one.pair(kind);
  }

  // There is no calculation of a difference but its two.
  computed() {
    return false;
  }

  measures() {
    return ["difference"];
  }

  measured() {
    return { difference: this.facts.difference, of: "" };
  }

  most(kind, layer, head) {
    return this.compared.kinds[kind].most[this.layers(kind).indexOf(layer)][head];
  }

  statistics(kind) {
    const { divergence, compared } = this.compared.kinds[kind];
    return { divergence, compared };
  }

  row(kind, layer, head, query) {
    return this.subtract(kind, "query", "key", query, (source, at) => source.row(kind, layer, head, at));
  }

  column(kind, layer, head, key) {
    return this.subtract(kind, "key", "query", key, (source, at) => source.column(kind, layer, head, at));
  }

  subtract(kind, side, across, index, ask) {
    const { places } = this.merged[kind][across];
    const out = new Float64Array(places.length);
    const [a, b] = this.merged[kind][side].places[index];
    // A sink that only one of two models has weighs nothing in the other; a token that only one has is not compared.
    const sink = Boolean(this.merged[kind][side].tokens[index].sink);
    if ((a === null || b === null) && !sink) return out;
    const ours = a === null ? null : ask(this.one, a);
    const theirs = b === null ? null : ask(this.other, b);
    if ((a !== null && !ours) || (b !== null && !theirs)) return null;
    places.forEach(([i, j], at) => {
      const lone = i === null || j === null;
      if (lone && !this.merged[kind][across].tokens[at].sink) return;
      out[at] = (theirs && j !== null ? theirs[j] : 0) - (ours && i !== null ? ours[i] : 0);
    });
    return out;
  }

  // Where either of the two lets it.
  allows(kind, layer, head, query, key) {
    const { query: queries, key: keys } = this.merged[kind];
    return [this.one, this.other].some((source, i) => {
      const [q, k] = [queries.places[query][i], keys.places[key][i]];
      return q !== null && k !== null && source.allows(kind, layer, head, q, k);
    });
  }

  listen(listener) {
    this.one.listen(listener);
    this.other.listen(listener);
  }
}
