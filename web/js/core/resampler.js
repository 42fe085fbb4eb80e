/**
 * A stateful rational resampler: polyphase windowed sinc, zero phase, exact in length.
 *
 * Output sample n stands at input position n × input rate / output rate, so a stream keeps its clock however it is cut
 * into blocks. The low-pass ends at 94 % of the lower Nyquist frequency, and what would alias is 80 dB down.
 */

const ZERO_CROSSINGS = 32;
const KAISER_BETA = 8;
const CUTOFF_OF_NYQUIST = 0.94;

/**
 * @param {number} a
 * @param {number} b
 * @returns {number}
 */
function greatestCommonDivisor(a, b) {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}

/**
 * Modified Bessel function of the first kind, order zero, by its power series.
 *
 * @param {number} x
 */
function besselI0(x) {
  let sum = 1;
  let term = 1;
  for (let k = 1; term > 1e-12 * sum; k += 1) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

/** @param {number} x */
function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

/**
 * Filter taps of each phase, one after another, every phase with unit gain at 0 Hz.
 *
 * @param {number} phases
 * @param {number} halfTaps taps on each side of the centre
 * @param {number} cutoff as a share of the input's Nyquist frequency
 */
function polyphaseTaps(phases, halfTaps, cutoff) {
  const width = 2 * halfTaps;
  const taps = new Float32Array(phases * width);
  for (let phase = 0; phase < phases; phase += 1) {
    let sum = 0;
    for (let k = 0; k < width; k += 1) {
      const distance = k - (halfTaps - 1) - phase / phases;
      const edge = Math.min(1, Math.abs(distance) / halfTaps);
      const window = besselI0(KAISER_BETA * Math.sqrt(1 - edge * edge)) / besselI0(KAISER_BETA);
      const tap = sinc(cutoff * distance) * window;
      taps[phase * width + k] = tap;
      sum += tap;
    }
    for (let k = 0; k < width; k += 1) taps[phase * width + k] /= sum;
  }
  return taps;
}

export class StreamResampler {
  /** @type {number} */ #up;
  /** @type {number} */ #down;
  /** @type {number} */ #halfTaps;
  /** @type {Float32Array} */ #taps;
  /** @type {Float32Array} input kept for the taps still to come; its first sample is input number `#historyStart` */
  #history;
  /** @type {number} */ #historyStart;
  #inputSamples = 0;
  #outputSamples = 0;

  /**
   * @param {number} inputRateHz
   * @param {number} outputRateHz
   */
  constructor(inputRateHz, outputRateHz) {
    const divisor = greatestCommonDivisor(inputRateHz, outputRateHz);
    this.#up = outputRateHz / divisor;
    this.#down = inputRateHz / divisor;
    const ratio = Math.max(1, this.#down / this.#up);
    this.#halfTaps = this.#up === this.#down ? 0 : Math.ceil(ZERO_CROSSINGS * ratio);
    this.#taps = polyphaseTaps(this.#up, this.#halfTaps, CUTOFF_OF_NYQUIST / ratio);
    this.#history = new Float32Array(this.#halfTaps);
    this.#historyStart = -this.#halfTaps;
  }

  /** Samples taken in so far. */
  get inputSamples() {
    return this.#inputSamples;
  }

  /** Samples handed out so far. */
  get outputSamples() {
    return this.#outputSamples;
  }

  /** Input position of the next output sample, in input samples since the beginning. */
  get nextInputPosition() {
    return (this.#outputSamples * this.#down) / this.#up;
  }

  /**
   * What can be computed once `input` is known; the last few milliseconds wait for the next block.
   *
   * @param {Float32Array} input
   * @returns {Float32Array}
   */
  process(input) {
    this.#inputSamples += input.length;
    if (this.#halfTaps === 0) {
      this.#outputSamples += input.length;
      return input.slice();
    }
    this.#append(input);
    return this.#emit(Math.floor(((this.#inputSamples - this.#halfTaps) * this.#up - 1) / this.#down) + 1);
  }

  /**
   * The rest of the stream: afterwards exactly ceil(inputs × output rate / input rate) samples were handed out.
   *
   * @returns {Float32Array}
   */
  drain() {
    if (this.#halfTaps === 0) return new Float32Array(0);
    this.#append(new Float32Array(this.#halfTaps + 1));
    return this.#emit(Math.ceil((this.#inputSamples * this.#up) / this.#down));
  }

  /** @param {Float32Array} input */
  #append(input) {
    const firstNeeded = Math.floor(this.nextInputPosition) - this.#halfTaps + 1;
    const kept = this.#history.subarray(Math.max(0, firstNeeded - this.#historyStart));
    const joined = new Float32Array(kept.length + input.length);
    joined.set(kept);
    joined.set(input, kept.length);
    this.#historyStart += this.#history.length - kept.length;
    this.#history = joined;
  }

  /** @param {number} until number of the first output sample that stays back */
  #emit(until) {
    const count = Math.max(0, until - this.#outputSamples);
    const output = new Float32Array(count);
    for (let i = 0; i < count; i += 1) output[i] = this.#sample(this.#outputSamples + i);
    this.#outputSamples += count;
    return output;
  }

  /** @param {number} index */
  #sample(index) {
    const position = index * this.#down;
    const centre = Math.floor(position / this.#up);
    const width = 2 * this.#halfTaps;
    const tap = (position % this.#up) * width;
    const first = centre - this.#halfTaps + 1 - this.#historyStart;
    let sum = 0;
    for (let k = 0; k < width; k += 1) sum += this.#taps[tap + k] * this.#history[first + k];
    return sum;
  }
}
