// What comes of a sentence and its edits: which words moved, and what the model expects.

import { make, readable } from "../base/dom.js";

const MOST = 6; // words that are named
const STILL = 0.9995; // a cosine from here on is written as 1.000

/** @param {() => void} keep */
export function makeMoved(keep) {
  const said = make("span", {});
  const list = make("ol", { class: "live-words" });
  const again = make("button", { type: "button", class: "button" }, "Compare from here");
  again.addEventListener("click", keep);
  const element = make("div", { class: "live-found" }, said, list, again);
  return {
    element,
    show({ text, pairs, isFar }, now, isChanged) {
      const moved = pairs.filter(({ cosine }) => cosine < STILL).sort((a, b) => a.cosine - b.cosine);
      const isSame = text === now;
      const short = text.length > 32 ? `${text.slice(0, 31)}…` : text;
      said.textContent = !isChanged
        ? "Type over the sentence, switch a head off or drag a weight: here you read which words' contextual embeddings it moves."
        : isFar
          ? `Too few of these words are in “${short}” to say which moved.`
          : moved.length === 0
            ? `No word's contextual embedding moved${isSame ? "" : `, compared with “${short}”`}.`
            : `Embeddings that moved most${isSame ? "" : `, compared with “${short}”`} (cosine, 1 is unmoved):`;
      again.hidden = !isChanged;
      const shown = isChanged && !isFar ? moved.slice(0, MOST) : [];
      list.hidden = shown.length === 0;
      list.replaceChildren(
        ...shown.map(({ text: word, cosine }) => {
          const bar = make("span", { class: "live-bar" });
          bar.style.width = `${Math.round(40 * Math.min(1, 1 - cosine))}px`;
          return make("li", {}, make("bdi", {}, readable(word)), ` ${cosine.toFixed(3)}`, bar);
        }),
      );
    },
  };
}

/** @param {"next" | "masked"} head @param {(span: [number, number] | null, text: string) => void} take */
export function makePredicted(head, take) {
  const said = make("span", {});
  const list = make("div", { class: "live-expected" });
  const element = make("div", { class: "live-found" }, said, list);
  return {
    element,
    show(predicted, { tokens }) {
      said.textContent =
        head === "next"
          ? "The model goes on with:"
          : predicted.length > 0
            ? "In the place of [MASK] the model expects:"
            : "Write [MASK] for a word, and see what the model expects there.";
      list.replaceChildren(
        ...predicted.map(({ at, best }) => {
          const words = make("ol", { class: "live-words" });
          for (const { text, isText, probability } of best) {
            const name = make("bdi", {}, readable(text));
            const button = make("button", { type: "button", class: "live-chip", disabled: !isText }, name);
            button.append(` ${(100 * probability).toFixed(probability < 0.1 ? 1 : 0)} %`);
            button.addEventListener("click", () => take(head === "next" ? null : tokens[at].span, text));
            words.append(make("li", {}, button));
          }
          return words;
        }),
      );
    },
  };
}
