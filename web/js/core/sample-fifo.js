/** A ring of samples that grows when full. Reading never allocates, so an audio thread may do it. */

const INITIAL_CAPACITY = 1 << 14;

export class SampleFifo {
  #ring = new Float32Array(INITIAL_CAPACITY);
  #read = 0;
  #length = 0;

  get length() {
    return this.#length;
  }

  /** @param {Float32Array} samples */
  write(samples) {
    this.#reserve(this.#length + samples.length);
    const start = (this.#read + this.#length) % this.#ring.length;
    const head = Math.min(samples.length, this.#ring.length - start);
    this.#ring.set(samples.subarray(0, head), start);
    this.#ring.set(samples.subarray(head), 0);
    this.#length += samples.length;
  }

  /**
   * Fill `output` from `offset` on with at most `count` samples.
   *
   * @param {Float32Array} output
   * @param {number} offset
   * @param {number} count
   * @returns {number} how many there were
   */
  readInto(output, offset, count) {
    const taken = Math.min(count, this.#length, output.length - offset);
    for (let i = 0; i < taken; i += 1) {
      output[offset + i] = this.#ring[(this.#read + i) % this.#ring.length];
    }
    this.#read = (this.#read + taken) % this.#ring.length;
    this.#length -= taken;
    return taken;
  }

  clear() {
    this.#length = 0;
  }

  /** @param {number} needed */
  #reserve(needed) {
    if (needed <= this.#ring.length) return;
    let capacity = this.#ring.length;
    while (capacity < needed) capacity *= 2;
    const grown = new Float32Array(capacity);
    const kept = this.#length;
    this.readInto(grown, 0, kept);
    this.#ring = grown;
    this.#read = 0;
    this.#length = kept;
  }
}
