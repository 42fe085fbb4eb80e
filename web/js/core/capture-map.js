/** Which moment a microphone sample was captured at: sent sample numbers ↔ the page's clock. Pure. */

const KEPT_FRAMES = 6000;

export class CaptureMap {
  /** @type {{ firstSample: number, endSample: number, endMs: number }[]} */ #frames = [];
  /** @type {number} */ #samplesPerMs;
  #sentSamples = 0;

  /** @param {number} sampleRateHz rate of the samples as sent */
  constructor(sampleRateHz) {
    this.#samplesPerMs = sampleRateHz / 1000;
  }

  /** Samples sent since the call began: the number of the next one. */
  get sentSamples() {
    return this.#sentSamples;
  }

  /**
   * A frame was sent.
   *
   * @param {number} samples
   * @param {number} endMs when its last sample was captured
   */
  add(samples, endMs) {
    const firstSample = this.#sentSamples;
    this.#sentSamples += samples;
    this.#frames.push({ firstSample, endSample: this.#sentSamples, endMs });
    if (this.#frames.length > KEPT_FRAMES) this.#frames.splice(0, KEPT_FRAMES / 10);
  }

  /**
   * When sample number `sample` was captured; null where it was not sent, or too long ago.
   *
   * @param {number} sample
   * @returns {number | null}
   */
  capturedAtMs(sample) {
    let low = 0;
    let high = this.#frames.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const frame = this.#frames[middle];
      if (sample < frame.firstSample) high = middle - 1;
      else if (sample >= frame.endSample) low = middle + 1;
      else return frame.endMs - (frame.endSample - 1 - sample) / this.#samplesPerMs;
    }
    return null;
  }

  /** A new connection counts samples anew. */
  reset() {
    this.#frames = [];
    this.#sentSamples = 0;
  }
}
