// What makes the scores of a layer, as a reader is shown it. Every score is a sum over the dimensions of products of two
// factors: those of the dot product are q and k. Python's form is core/_scorers.py.

const DOT = {
  left: "q",
  right: "k",
  score: "q · k",
  title: "Multiply q and k, dimension by dimension, and add up",
  note: "q and k as they enter the product.",
};

const OTHERS = {
  bilinear: {
    ...DOT,
    left: "qW",
    score: "qW · k",
    title: "Multiply qW and k, dimension by dimension, and add up",
    note: "qW is the query times the learned matrix W of this head (Luong's “general”).",
  },
  cosine: {
    left: "q / |q|",
    right: "k / |k|",
    score: "cos(q, k)",
    title: "Multiply q and k, both of length 1, and add up: the cosine of their angle",
    note: "q and k, each divided by its length: the score says where they point, and not how long they are.",
  },
  additive: {
    left: "v_a",
    right: "tanh(q + k)",
    score: "v_a · tanh(q + k)",
    title: "Add q and k, take the tanh, multiply by v_a, and add up",
    note: "v_a is learned, one number for each dimension of this head: Bahdanau's additive attention. The values v are others.",
  },
};

// The words of a layer's scorer; null is the dot product.
export const saidOf = (scorer) => (scorer ? OTHERS[scorer.name] : DOT);

// The two factors of one dimension, of what a layer has for q and k there.
export const factorsOf = (scorer, d, q, k) => (scorer?.v ? [scorer.v[d], Math.tanh(q + k)] : [q, k]);
