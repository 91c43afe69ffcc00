// A piece of the vocabulary as people read it: the bytes of GPT-2's alphabet are text again.

import { LETTERS } from "./byte_level.js";

const BYTES = new Map(LETTERS.map((letter, byte) => [letter, byte]));

/** @param {string} piece @returns {{ text: string, isText: boolean }} a part of a character is named by its bytes */
export function readPiece(piece) {
  const found = [...piece].map((letter) => BYTES.get(letter));
  if (found.some((byte) => byte === undefined)) return { text: piece, isText: true };
  const plain = Uint8Array.from(/** @type {number[]} */ (found));
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(plain), isText: true };
  } catch {
    return { text: `bytes ${[...plain].map((byte) => byte.toString(16).toUpperCase()).join(" ")}`, isText: false };
  }
}
