/**
 * One generation of speech, counted in its own samples as it is played.
 *
 * It is kept as it came and resampled only as it is needed: a whole answer may arrive at once, and an audio thread that
 * resampled it at once would be late for everything else, a flush above all.
 */

import { StreamResampler } from './resampler.js';
import { SampleFifo } from './sample-fifo.js';

/** Samples resampled in one go. */
const CHUNK_SAMPLES = 256;

/**
 * @typedef {object} TrackOptions
 * @property {number} fadeFrames length of a fade, in context frames
 * @property {number} prebufferFrames how much is gathered before playing starts or resumes
 * @property {number} waitFrames how long it is waited for that, once there is anything
 */

export class PlayoutTrack {
  /** @type {number} */ generation;
  started = false;
  /** True after a render that ended in want of samples. */
  ranDry = false;
  /** @type {'waiting' | 'playing' | 'starved'} */ #state = 'waiting';
  #unplayed = new SampleFifo();
  /** Resampled and next to be rendered. */
  #fifo = new SampleFifo();
  #chunk = new Float32Array(CHUNK_SAMPLES);
  /** @type {StreamResampler} */ #resampler;
  /** @type {number} */ #samplesPerFrame;
  /** @type {TrackOptions} */ #options;
  #received = 0;
  #rendered = 0;
  #waited = 0;
  #complete = false;
  #drained = false;
  /** @type {number} */ #fadeInLeft = 0;
  /** @type {number | null} frames of the final fade still to come */ #fadeOutLeft = null;
  #fadeOutFrames = 0;
  #lastSample = 0;

  /**
   * @param {number} generation
   * @param {number} sampleRateHz
   * @param {number} contextRateHz
   * @param {TrackOptions} options
   */
  constructor(generation, sampleRateHz, contextRateHz, options) {
    this.generation = generation;
    this.#resampler = new StreamResampler(sampleRateHz, contextRateHz);
    this.#samplesPerFrame = sampleRateHz / contextRateHz;
    this.#options = options;
  }

  /** Samples of the speech's own rate that were rendered: never more than were received. */
  get playedSamples() {
    return Math.min(this.#received, Math.floor(this.#rendered * this.#samplesPerFrame));
  }

  get bufferedFrames() {
    return this.#fifo.length + this.#unplayed.length / this.#samplesPerFrame;
  }

  /** Whether cutting it now would be heard. */
  get audible() {
    return this.started && this.#state === 'playing' && this.bufferedFrames > 0;
  }

  get finished() {
    if (this.#fadeOutLeft !== null) return this.#fadeOutLeft === 0 || this.#fifo.length === 0;
    return this.#complete && this.bufferedFrames === 0 && (this.#drained || this.#received === 0);
  }

  /**
   * Lost samples become silence and repeated ones are dropped, so that positions stay true.
   *
   * @param {number} startSample
   * @param {Float32Array} samples
   */
  write(startSample, samples) {
    if (this.#complete) return;
    const missing = startSample - this.#received;
    if (missing > 0) this.#accept(new Float32Array(missing));
    this.#accept(missing < 0 ? samples.subarray(-missing) : samples);
  }

  end() {
    this.#complete = true;
  }

  /** From here on only the fade is played. */
  fadeOut() {
    this.#fill(this.#options.fadeFrames);
    this.#fadeOutFrames = Math.min(this.#options.fadeFrames, this.#fifo.length);
    this.#fadeOutLeft = this.#fadeOutFrames;
    return this;
  }

  /**
   * Render into `output` from `offset` on.
   *
   * @param {Float32Array} output
   * @param {number} offset
   * @returns {number} frames filled; less than asked for where the track ended or has nothing to play
   */
  render(output, offset) {
    this.ranDry = false;
    const wanted = output.length - offset;
    if (this.#state !== 'playing' && !this.#mayStart(wanted)) return 0;
    const limit = this.#fadeOutLeft === null ? wanted : Math.min(wanted, this.#fadeOutLeft);
    this.#fill(limit);
    const count = this.#fifo.readInto(output, offset, limit);
    this.#rendered += count;
    this.#shape(output, offset, count);
    if (count < limit && !this.#complete && this.#fadeOutLeft === null) this.#starve(output, offset + count);
    return count;
  }

  /** @param {Float32Array} samples */
  #accept(samples) {
    this.#received += samples.length;
    this.#unplayed.write(samples);
  }

  /** @param {number} frames to have ready, where there are as many */
  #fill(frames) {
    while (this.#fifo.length < frames && this.#unplayed.length > 0) {
      const taken = this.#unplayed.readInto(this.#chunk, 0, CHUNK_SAMPLES);
      this.#fifo.write(this.#resampler.process(this.#chunk.subarray(0, taken)));
    }
    if (!this.#complete || this.#drained || this.#unplayed.length > 0) return;
    this.#drained = true;
    this.#fifo.write(this.#resampler.drain());
  }

  /** @param {number} blockFrames */
  #mayStart(blockFrames) {
    if (this.bufferedFrames === 0) return this.#complete;
    this.#waited += blockFrames;
    const enough = this.bufferedFrames >= this.#options.prebufferFrames;
    if (!enough && !this.#complete && this.#waited < this.#options.waitFrames) return false;
    if (this.#state === 'starved') this.#fadeInLeft = this.#options.fadeFrames;
    this.#state = 'playing';
    this.started = true;
    return true;
  }

  /**
   * Out of samples with more to come: let the last value die away instead of clicking.
   *
   * @param {Float32Array} output
   * @param {number} offset
   */
  #starve(output, offset) {
    this.ranDry = true;
    this.#state = 'starved';
    this.#waited = 0;
    const frames = Math.min(output.length - offset, this.#options.fadeFrames);
    for (let i = 0; i < frames; i += 1) output[offset + i] = this.#lastSample * (1 - (i + 1) / frames);
  }

  /**
   * Fades, and the memory of the last sample.
   *
   * @param {Float32Array} output
   * @param {number} offset
   * @param {number} count
   */
  #shape(output, offset, count) {
    const { fadeFrames } = this.#options;
    for (let i = offset; i < offset + count; i += 1) {
      if (this.#fadeInLeft > 0) {
        output[i] *= 1 - this.#fadeInLeft / fadeFrames;
        this.#fadeInLeft -= 1;
      }
      if (this.#fadeOutLeft !== null) {
        this.#fadeOutLeft -= 1;
        output[i] *= this.#fadeOutLeft / this.#fadeOutFrames;
      }
    }
    if (count > 0) this.#lastSample = output[offset + count - 1];
  }
}
