/**
 * What plays, and exactly how much of it: the pure heart of the playback worklet.
 *
 * Speech comes in generations and is played in their order. A flush ends all generations below it with a 10 ms fade
 * and says how many samples of each were rendered. Running dry fades out, is counted, and playing resumes with a fade
 * in once some audio is there again. Counts are in samples of the speech's own rate, since its generation began.
 * Speech that the user may be interrupting is lowered, then held: what was rendered lowered counts as played, and
 * after a hold the very next sample is played.
 *
 * States of a track: `waiting` (a little audio is gathered first) → `playing` ⇄ `starved` → gone, with one report.
 */

import { PlayoutTrack } from './playout-track.js';

const DEFAULTS = {
  fadeMs: 10,
  prebufferMs: 60,
  prebufferWaitMs: 120,
  duckGain: 0.18,
  duckRampMs: 40,
  /** Lowered for so long, speech is held: it would be talking past the user. */
  holdAfterMs: 400,
};

/**
 * @typedef {object} PlayoutNotice something that happened within one rendered block
 * @property {'started' | 'ended' | 'flushed' | 'underrun'} kind
 * @property {number} generation
 * @property {number} playedSamples
 * @property {number} offset frame within the block at which it happened
 */

export class Playout {
  /** @type {PlayoutTrack[]} */ #tracks = [];
  /** @type {PlayoutTrack | null} the flushed track that is still fading */ #fading = null;
  /** @type {PlayoutNotice[]} */ #notices = [];
  #floor = 0;
  #staleFrames = 0;
  #underruns = 0;
  #gain = 1;
  #ducked = false;
  #duckedFrames = 0;
  /** @type {number} */ #contextRateHz;
  /** @type {typeof DEFAULTS} */ #options;

  /**
   * @param {number} contextRateHz rate at which blocks are rendered
   * @param {Partial<typeof DEFAULTS>} [options]
   */
  constructor(contextRateHz, options = {}) {
    this.#contextRateHz = contextRateHz;
    this.#options = { ...DEFAULTS, ...options };
  }

  /** The generation that plays or comes next; null: nothing to play. */
  get current() {
    return this.#tracks[0] ?? null;
  }

  get underruns() {
    return this.#underruns;
  }

  /** Nothing is rendered until the duck is over: every track keeps its place. */
  get held() {
    return this.#holding && this.#gain === 0;
  }

  /** Frames dropped because their generation had been flushed. */
  get staleFrames() {
    return this.#staleFrames;
  }

  /** Lowest generation that is still let in. */
  get floor() {
    return this.#floor;
  }

  /**
   * A generation of speech is about to come. Announcing it twice, or below the floor, does nothing.
   *
   * @param {number} generation
   * @param {number} sampleRateHz
   */
  begin(generation, sampleRateHz) {
    if (generation < this.#floor || this.#track(generation)) return;
    const frames = (/** @type {number} */ ms) => Math.round((ms * this.#contextRateHz) / 1000);
    this.#tracks.push(
      new PlayoutTrack(generation, sampleRateHz, this.#contextRateHz, {
        fadeFrames: Math.max(1, frames(this.#options.fadeMs)),
        prebufferFrames: frames(this.#options.prebufferMs),
        waitFrames: frames(this.#options.prebufferWaitMs),
      }),
    );
    this.#tracks.sort((a, b) => a.generation - b.generation);
  }

  /**
   * @param {number} generation stale or never announced ones are dropped
   * @param {number} startSample
   * @param {Float32Array} samples
   */
  write(generation, startSample, samples) {
    const track = this.#track(generation);
    if (track) track.write(startSample, samples);
    else this.#staleFrames += 1;
  }

  /**
   * Nothing more will come of this generation.
   *
   * @param {number} generation
   */
  end(generation) {
    this.#track(generation)?.end();
  }

  /**
   * Stop every generation below `floor`.
   *
   * @param {number} floor
   */
  flush(floor) {
    this.#floor = Math.max(this.#floor, floor);
    const flushed = this.#tracks.filter((track) => track.generation < floor);
    this.#tracks = this.#tracks.filter((track) => track.generation >= floor);
    for (const track of flushed) {
      if (track.audible && !this.#fading && !this.held) this.#fading = track.fadeOut();
      else this.#notice('flushed', track, 0);
    }
  }

  /** A new connection counts generations anew: stop all, let everything in. */
  reset() {
    this.flush(Infinity);
    this.#floor = 0;
    this.duck(false);
  }

  /**
   * Lower the voice while it is unclear whether the user is interrupting, and hold it if that takes long.
   *
   * @param {boolean} ducked
   */
  duck(ducked) {
    if (ducked !== this.#ducked) this.#duckedFrames = 0;
    this.#ducked = ducked;
  }

  /**
   * Fill one block. The notices belong to the caller and are in the order in which things happened.
   *
   * @param {Float32Array} output
   * @returns {PlayoutNotice[]}
   */
  render(output) {
    output.fill(0);
    const offset = this.#renderFading(output);
    if (!this.held) this.#renderTracks(output, offset);
    this.#applyGain(output);
    if (this.#ducked) this.#duckedFrames += output.length;
    const notices = this.#notices;
    if (notices.length > 0) this.#notices = [];
    return notices;
  }

  /**
   * @param {Float32Array} output
   * @returns {number} first frame that is free
   */
  #renderFading(output) {
    const track = this.#fading;
    if (!track) return 0;
    const rendered = track.render(output, 0);
    if (!track.finished) return output.length;
    this.#fading = null;
    this.#notice('flushed', track, rendered);
    return rendered;
  }

  /**
   * @param {Float32Array} output
   * @param {number} offset
   */
  #renderTracks(output, offset) {
    let position = offset;
    while (position < output.length && this.#tracks.length > 0) {
      const track = this.#tracks[0];
      const wasStarted = track.started;
      const from = position;
      position += track.render(output, position);
      if (!wasStarted && track.started) this.#notice('started', track, from);
      if (track.ranDry) {
        this.#underruns += 1;
        this.#notice('underrun', track, position);
      }
      if (!track.finished) return;
      this.#tracks.shift();
      this.#notice('ended', track, position);
    }
  }

  get #holding() {
    return this.#ducked && this.#duckedFrames * 1000 >= this.#options.holdAfterMs * this.#contextRateHz;
  }

  get #gainTarget() {
    if (this.#holding) return 0;
    return this.#ducked ? this.#options.duckGain : 1;
  }

  /** @param {Float32Array} output */
  #applyGain(output) {
    const target = this.#gainTarget;
    if (this.#gain === 1 && target === 1) return;
    const step = 1000 / (this.#options.duckRampMs * this.#contextRateHz);
    for (let i = 0; i < output.length; i += 1) {
      const distance = target - this.#gain;
      this.#gain += Math.sign(distance) * Math.min(step, Math.abs(distance));
      output[i] *= this.#gain;
    }
  }

  /** @param {number} generation */
  #track(generation) {
    return this.#tracks.find((track) => track.generation === generation);
  }

  /**
   * @param {PlayoutNotice['kind']} kind
   * @param {PlayoutTrack} track
   * @param {number} offset
   */
  #notice(kind, track, offset) {
    this.#notices.push({ kind, generation: track.generation, playedSamples: track.playedSamples, offset });
  }
}
