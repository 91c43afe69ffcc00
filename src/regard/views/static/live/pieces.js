// A piece of the vocabulary as people read it: the bytes of GPT-2's alphabet are text again.

const FIRST = 256; // bytes that are no sign of their own have the signs from here on
const PLAIN = [
  [0x21, 0x7e],
  [0xa1, 0xac],
  [0xae, 0xff],
];

/** @type {Map<number, number> | null} */
let bytes = null;

/** @param {string} piece @returns {{ text: string, isText: boolean }} a part of a character is named by its bytes */
export function readPiece(piece) {
  if (!bytes) {
    bytes = new Map();
    let next = FIRST;
    for (let byte = 0; byte < 256; byte += 1) {
      bytes.set(PLAIN.some(([low, high]) => byte >= low && byte <= high) ? byte : next++, byte);
    }
  }
  const found = [...piece].map((sign) => bytes?.get(/** @type {number} */ (sign.codePointAt(0))));
  if (found.some((byte) => byte === undefined)) return { text: piece, isText: true };
  const plain = Uint8Array.from(/** @type {number[]} */ (found));
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(plain), isText: true };
  } catch {
    return { text: `bytes ${[...plain].map((byte) => byte.toString(16).toUpperCase()).join(" ")}`, isText: false };
  }
}
