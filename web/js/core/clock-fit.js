/**
 * The audio clock seen from the page's clock. Pure.
 *
 * Reading the audio clock is late by up to a few blocks and never early, so of many readings the smallest offset is
 * nearest the truth. Readings are kept for a while only: the two clocks drift.
 */

const KEPT_READINGS = 200;

export class ClockFit {
  /** @type {number[]} */ #offsets = [];

  /**
   * @param {number} audioS the audio context's time
   * @param {number} pageMs the page's time, read right after it
   */
  observe(audioS, pageMs) {
    this.#offsets.push(pageMs - audioS * 1000);
    if (this.#offsets.length > KEPT_READINGS) this.#offsets.shift();
  }

  /**
   * Page time of an audio time; null before the first reading.
   *
   * @param {number} audioS
   * @returns {number | null}
   */
  pageMs(audioS) {
    if (this.#offsets.length === 0) return null;
    return audioS * 1000 + Math.min(...this.#offsets);
  }

  reset() {
    this.#offsets = [];
  }
}
