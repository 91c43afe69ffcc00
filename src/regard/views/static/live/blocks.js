// Bytes as the page holds them: base64, with a checksum.

import { decodeBase64 } from "../base/numbers.js";

let table = /** @type {Uint32Array | null} */ (null);

/** CRC-32, as Python's zlib.crc32. @param {Uint8Array} bytes @returns {number} */
export function crc32(bytes) {
  table ??= Uint32Array.from({ length: 256 }, (_, value) => {
    for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
    return value;
  });
  let crc = -1;
  for (let at = 0; at < bytes.length; at += 1) crc = table[(crc ^ bytes[at]) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

/** @param {string} text @returns {Uint8Array} of what was cut short, as many bytes as there are */
export const fromBase64 = (text) => decodeBase64(text.slice(0, text.length - (text.length % 4)));
