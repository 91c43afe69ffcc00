// What a live page's address says beside what every page's says: the sentence, where it is not the file's own, and what is
// changed in the model: "#layer=5&head=11&text=A+bank.&off=5.11&weights=5.11.1.3:0.9"; against=, a second text
// that the front door shows with it.

const NAMES = ["text", "pair"];
const MOST = 64; // edits

// own, ownAgainst: the file's texts, and what stands beside them.
/** @typedef {{ texts: string[], off: [number, number][], weights: import("./edits.js").Dragged[],
 *   against: string | null }} Said */

/**
 * What an address says; null where it says nothing of this. What it does not understand is left out.
 * @param {string} hash @param {string[]} own the file's texts
 * @param {(layer: number, head: number) => boolean} isHead
 * @returns {Said | null}
 */
export function readSaid(hash, own, isHead, ownAgainst = null) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  if (![...NAMES, "off", "weights", "against"].some((name) => given.has(name))) return null;
  const numbers = (/** @type {string} */ name, /** @type {RegExp} */ form) =>
    (given.get(name) ?? "")
      .split(",")
      .slice(0, MOST)
      .flatMap((each) => {
        const found = form.exec(each)?.slice(1).map(Number) ?? [];
        return found.length > 0 && isHead(found[0], found[1]) ? [found] : [];
      });
  const heads = numbers("off", /^(\d{1,3})\.(\d{1,3})$/);
  const dragged = numbers("weights", /^(\d{1,3})\.(\d{1,3})\.(\d{1,6})\.(\d{1,6}):([01](?:\.\d{1,4})?)$/);
  return {
    texts: own.map((text, at) => given.get(NAMES[at]) ?? text),
    off: heads.map(([layer, head]) => [layer, head]),
    weights: dragged.map(([layer, head, query, key, value]) => ({ layer, head, query, key, value })),
    against: given.has("against") ? given.get("against") || null : given.has("text") ? null : ownAgainst,
  };
}

/** The address with the sentence of a server's "?text=" in it, where it names no other. @param {Location} location */
export function hashOf({ hash, search }) {
  const text = new URLSearchParams(search).get("text");
  if (text === null || new URLSearchParams(hash.slice(1)).has("text")) return hash;
  return withSaid(hash, { texts: [text], off: [], weights: [], against: null }, [""]);
}

/** A link whose sentence its server sees, and whoever draws a picture of it. @param {string} link @param {string} text */
export function asQuery(link, text) {
  const url = new URL(link);
  url.searchParams.set("text", text);
  url.hash = url.hash.replace(/([#&])text=[^&]*&?/, "$1").replace(/&$/, "");
  return url.href;
}

/** The address with this in it. @param {string} hash @param {Said} said @param {string[]} own */
export function withSaid(hash, { texts, off, weights, against }, own, ownAgainst = null) {
  const parts = new URLSearchParams();
  texts.forEach((text, at) => text !== own[at] && parts.set(NAMES[at], text));
  if (off.length > 0) parts.set("off", off.map((each) => each.join(".")).join(","));
  const place = (/** @type {import("./edits.js").Dragged} */ { layer, head, query, key, value }) =>
    `${[layer, head, query, key].join(".")}:${Number(value.toFixed(4))}`;
  if (weights.length > 0) parts.set("weights", weights.map(place).join(","));
  if (against !== ownAgainst) parts.set("against", against ?? "");
  return parts.size === 0 ? hash : `${hash || "#"}${hash.length > 1 ? "&" : ""}${parts}`;
}
