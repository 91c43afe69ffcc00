// What comes of a sentence and its edits: which words moved, and what the model expects.

import { makeButton } from "../base/controls.js";
import { make, readable } from "../base/dom.js";
import { deepest, finePercent, movedSaid } from "../base/said.js";
import { written } from "../door/attention.js";

const MOST = 6; // words that are named; in the sentence, half as many have numbers
const STILL = 0.9995; // a cosine from here on is written as 1.000

/** @param {() => void} keep */
export function makeMoved(keep) {
  const said = make("span", {});
  const list = make("ol", { class: "live-words" });
  const again = makeButton("Compare from here", keep);
  const element = make("div", { class: "live-found" }, said, list, again);
  return {
    element,
    show({ text, pairs, isFar, apart }, now, isChanged) {
      const moved = pairs.filter(({ cosine }) => cosine < STILL).sort((a, b) => a.cosine - b.cosine);
      const isSame = text === now;
      const short = text.length > 32 ? `${text.slice(0, 31)}…` : text;
      // How far the words moved, and what that is beside; only where it is asked for.
      const moves = pairs.map((pair, first) => ({ text: pair.text, first, moved: 1 - pair.cosine }));
      const usual = isChanged && isSame ? apart() : null;
      const told = !isChanged
        ? ["Type over the sentence, switch a head off or drag a weight: here you read which words it moves."]
        : moved.length === 0
          ? [`No word's contextual embedding moved${isSame ? "" : `, compared with “${short}”`}.`]
          : isSame
            ? ["So ", ...movedSaid(moves, null, usual)]
            : [`Embeddings that moved most, compared with “${short}” (cosine, 1 is unmoved):`];
      said.replaceChildren(...written(told));
      // Until there is something to say.
      element.hidden = isChanged && isFar;
      again.hidden = !isChanged;
      // Of an edit the sentence itself, with the words that moved marked.
      list.classList.toggle("as-sentence", isSame);
      const most = moved.slice(0, isSame ? MOST / 2 : MOST);
      const shown = isChanged && !isFar && moved.length > 0 ? (isSame ? pairs : most) : [];
      list.hidden = shown.length === 0;
      list.replaceChildren(
        ...shown.map((pair) => {
          const number = most.includes(pair) ? ` ${pair.cosine.toFixed(3)}` : "";
          const lost = Math.max(0, (1 - pair.cosine) / deepest(moves, usual)).toFixed(3);
          return make("li", { "--lost": lost }, make("bdi", {}, readable(pair.text)), make("small", {}, number));
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
    // Of an edit also what was expected before it.
    show(predicted, { tokens }, before = []) {
      said.textContent =
        head === "next"
          ? "The model goes on with:"
          : predicted.length > 0
            ? "In the place of [MASK] the model expects:"
            : "Write [MASK] for a word, and see what the model expects there.";
      list.replaceChildren(
        ...predicted.map(({ at, best }, place) => {
          const words = make("ol", { class: "live-words" });
          for (const { text, isText, probability } of best) {
            const name = make("bdi", {}, readable(text));
            const button = make("button", { type: "button", class: "live-chip", disabled: !isText }, name);
            const was = finePercent(before[place]?.best.find((each) => each.text === text)?.probability ?? probability);
            const is = finePercent(probability);
            button.append(` ${is === was ? is : `${was} → ${is}`}`);
            button.addEventListener("click", () => take(head === "next" ? null : tokens[at].span, text));
            words.append(make("li", {}, button));
          }
          return words;
        }),
      );
    },
  };
}
