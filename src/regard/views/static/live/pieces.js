// A piece of the vocabulary as people read it: the bytes of GPT-2's alphabet are text again.

import { LETTERS } from "./byte_level.js";

const BYTES = new Map(LETTERS.map((letter, byte) => [letter, byte]));

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @param {string} piece @returns {{ text: string, isText: boolean }} a part of a character is named by its bytes */
export function readPiece(piece) {
  const found = [...piece].map((letter) => BYTES.get(letter));
  if (found.some((byte) => byte === undefined)) return { text: piece, isText: true };
  const plain = Uint8Array.from(/** @type {number[]} */ (found));
  let [text, isText] = ["", true];
  for (let at = 0; at < plain.length; ) {
    const size = plain[at] < 0x80 ? 1 : plain[at] < 0xe0 ? 2 : plain[at] < 0xf0 ? 3 : 4;
    try {
      text += UTF8.decode(plain.subarray(at, at + size));
      at += size;
    } catch {
      text += `<0x${plain[at].toString(16).toUpperCase()}>`;
      isText = false;
      at += 1;
    }
  }
  return { text, isText };
}
