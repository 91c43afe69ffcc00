// The counts that numpy's generator draws for a bootstrap, so that a page's intervals are Python's: PCG64 (O'Neill 2014,
// "XSL RR"), and of its numbers Poisson counts of mean 1 (Knuth: how many factors until a product falls below 1 / e).

const WORD = (1n << 64n) - 1n;
const ALL = (1n << 128n) - 1n;
const FACTOR = 0x2360ed051fc65da44385df649fccf645n;
const LEAST = Math.exp(-1);

export class Draws {
  /** @param {{ state: string, inc: string }} start of the generator, in hexadecimal */
  constructor({ state, inc }) {
    this.state = BigInt(state);
    this.step = BigInt(inc);
    this.made = new Uint8Array(0);
    this.count = 0;
  }

  /** From 0 to below 1. */
  next() {
    this.state = (this.state * FACTOR + this.step) & ALL;
    const mixed = (this.state >> 64n) ^ (this.state & WORD);
    const turn = this.state >> 122n;
    const bits = ((mixed >> turn) | (mixed << (64n - turn))) & WORD;
    return Number(bits >> 11n) / 2 ** 53;
  }

  /** The first counts, which are the same ones whoever asks. @param {number} count */
  first(count) {
    if (count > this.made.length) {
      const longer = new Uint8Array(2 * count);
      longer.set(this.made);
      this.made = longer;
    }
    for (; this.count < count; this.count += 1) {
      let times = 0;
      for (let product = this.next(); product > LEAST; product *= this.next()) times += 1;
      this.made[this.count] = times;
    }
    return this.made;
  }
}
