// What the door's words mean, each said in one place: the help lists them, and the walk shows each where it stands.

/** @param {import("../base/types").Source} source */
export function termsOf(source) {
  const [kind] = source.kinds;
  const layers = source.layers(kind);
  const heads = Math.max(...layers.map((layer) => source.heads(kind, layer)));
  const name = source.facts.model.split("/").at(-1);
  const list = "makes of each word a list of numbers, which stands for what the word means";
  return {
    model:
      kind === "decoder"
        ? `A language model says which word comes next. For that it ${list} so far. This one is ${name}.`
        : `A language model ${list} in its sentence: search and translation work with these lists. This one is ${name}.`,
    percent: "Attention is shares: a word divides its 100 % among all words that it may see.",
    not: "It is no explanation: it says where one head looks, not what a word means, nor why the model does what it does.",
    heads:
      heads === 1
        ? "A layer has one head that looks so."
        : `A layer has ${heads} heads, which look side by side, each in its own way.`,
    layers:
      layers.length === 1
        ? "The model has one layer."
        : `The model has ${layers.length} layers in a row: each reads what the one before has made, and adds to it.`,
  };
}
