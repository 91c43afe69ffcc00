// How a vocabulary of byte pairs spells characters: GPT-2's kind has a letter for each byte; SentencePiece's has characters,
// a sign for the blank, and names of bytes for all others.

/**
 * @typedef {object} Spelling
 * @property {(code: number, has: (piece: string) => boolean) => string[]} spell the pieces of one character
 * @property {(piece: string) => number[] | null} bytes what a piece stands for; null where it is not spelled so
 */

const [BLANK, SIGN] = [" ", "▁"];

/** The characters that stand for bytes in GPT-2's alphabet: those that print stand for themselves. */
const LETTERS = (() => {
  /** @param {number} byte */
  const prints = (byte) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let others = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(prints(byte) ? byte : others++));
})();
const BYTES = new Map(LETTERS.map((letter, byte) => [letter, byte]));

const TO_UTF8 = new TextEncoder();
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @type {Record<"bytes" | "characters", Spelling>} */
export const SPELLINGS = {
  bytes: {
    spell: (code) => [...TO_UTF8.encode(String.fromCodePoint(code))].map((byte) => LETTERS[byte]),
    bytes(piece) {
      const found = [...piece].map((letter) => BYTES.get(letter));
      return found.some((byte) => byte === undefined) ? null : /** @type {number[]} */ (found);
    },
  },
  characters: {
    spell(code, has) {
      const character = String.fromCodePoint(code);
      return has(character) ? [character] : [...TO_UTF8.encode(character)].map(named);
    },
    bytes(piece) {
      const byte = /^<0x([0-9A-F]{2})>$/.exec(piece);
      return byte ? [Number.parseInt(byte[1], 16)] : [...TO_UTF8.encode(piece.replaceAll(SIGN, BLANK))];
    },
  },
};

/** @param {number} byte */
const named = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;

/**
 * Pieces of a vocabulary as people read them.
 * @param {Spelling} spelling @param {string[]} pieces
 * @returns {{ text: string, isText: boolean }} a part of a character is named by its bytes
 */
export function readPieces(spelling, pieces) {
  const found = pieces.map(spelling.bytes);
  if (found.includes(null)) return { text: pieces.join(""), isText: true };
  const plain = Uint8Array.from(/** @type {number[]} */ (found.flat()));
  let [text, isText] = ["", true];
  for (let at = 0; at < plain.length; ) {
    const size = plain[at] < 0x80 ? 1 : plain[at] < 0xe0 ? 2 : plain[at] < 0xf0 ? 3 : 4;
    try {
      text += UTF8.decode(plain.subarray(at, at + size));
      at += size;
    } catch {
      text += named(plain[at]);
      isText = false;
      at += 1;
    }
  }
  return { text, isText };
}
