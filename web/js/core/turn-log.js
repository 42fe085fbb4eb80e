/** The measured life of each turn and each interruption. Pure: every moment is handed in, in the page's milliseconds. */

import { summarize } from './percentiles.js';
import { STAGES, stageBars } from './waterfall.js';

/** @typedef {import('./waterfall.js').TurnRecord} TurnRecord */
/** @typedef {import('./waterfall.js').TurnTimings} TurnTimings */

/**
 * @typedef {object} Moments of one generation; null: has not happened
 * @property {number | null} receivedAtMs
 * @property {number | null} renderedAtMs
 * @property {number | null} outputLatencyMs
 * @property {number | null} capturedAtMs capture of the user's last voiced sample
 * @property {TurnTimings | null} server
 */

/**
 * @typedef {object} Interruption
 * @property {number} generation the first one that may play again
 * @property {number} decisionToSilenceMs from the flush's arrival at the page to the last faded sample
 */

export class TurnLog {
  /** @type {Map<number, Moments>} */ #generations = new Map();
  /** @type {Interruption[]} */ #interruptions = [];
  /** @type {TurnRecord[]} turns of earlier connections, whose generations count apart */ #settled = [];
  /** @type {{ generation: number, atMs: number } | null} */ #pendingFlush = null;

  /**
   * @param {number} generation
   * @param {number} atMs
   */
  frameReceived(generation, atMs) {
    const moments = this.#moments(generation);
    moments.receivedAtMs ??= atMs;
  }

  /**
   * Audio is rendered in bursts, so its clock may run a few milliseconds ahead of the page's: what was rendered had
   * been received.
   *
   * @param {number} generation
   * @param {number} atMs
   * @param {number | null} outputLatencyMs
   */
  rendered(generation, atMs, outputLatencyMs) {
    const moments = this.#moments(generation);
    if (moments.renderedAtMs !== null) return;
    moments.renderedAtMs = Math.max(atMs, moments.receivedAtMs ?? atMs);
    moments.outputLatencyMs = outputLatencyMs;
  }

  /**
   * @param {TurnTimings} server
   * @param {number | null} capturedAtMs
   */
  timings(server, capturedAtMs) {
    const moments = this.#moments(server.generation);
    moments.server = server;
    moments.capturedAtMs = capturedAtMs;
  }

  /**
   * @param {number} generation
   * @param {number} atMs
   */
  flushDecided(generation, atMs) {
    this.#pendingFlush = { generation, atMs };
  }

  /** @param {number} atMs when the last faded sample had been rendered for certain */
  silenced(atMs) {
    if (!this.#pendingFlush) return;
    const { generation, atMs: decidedAtMs } = this.#pendingFlush;
    this.#interruptions.push({ generation, decisionToSilenceMs: Math.max(0, atMs - decidedAtMs) });
    this.#pendingFlush = null;
  }

  /** A new connection counts generations anew. */
  reconnected() {
    this.#settled = this.turns;
    this.#generations = new Map();
    this.#pendingFlush = null;
  }

  get interruptions() {
    return [...this.#interruptions];
  }

  /** Spoken turns, oldest first. A greeting or the answer to a typed message is none: no speech ended before it. */
  get turns() {
    const current = [...this.#generations.entries()]
      .filter(([, moments]) => moments.server !== null)
      .sort(([a], [b]) => a - b);
    return current.reduce((turns, [generation, moments]) => {
      return [...turns, turnRecord(turns.length + 1, generation, moments)];
    }, this.#settled);
  }

  /** Percentiles of the call, in milliseconds: each stage's length, the whole, and interruptions. */
  get summary() {
    const bars = this.turns.map(stageBars);
    const stages = STAGES.map((stage) => {
      const lengths = bars.map((list) => list.find((bar) => bar.stage === stage));
      return [stage, summarize(lengths.map((bar) => bar && bar.toMs - bar.fromMs))];
    });
    return {
      stages: Object.fromEntries(stages),
      voiceToVoice: summarize(this.turns.map((turn) => turn.renderedMs)),
      decisionToSilence: summarize(this.#interruptions.map((one) => one.decisionToSilenceMs)),
    };
  }

  /** @param {number} generation */
  #moments(generation) {
    const known = this.#generations.get(generation);
    if (known) return known;
    /** @type {Moments} */
    const fresh = {
      receivedAtMs: null, renderedAtMs: null, outputLatencyMs: null, capturedAtMs: null, server: null,
    };
    this.#generations.set(generation, fresh);
    return fresh;
  }
}

/**
 * @param {number} number
 * @param {number} generation
 * @param {Moments} moments
 * @returns {TurnRecord}
 */
function turnRecord(number, generation, moments) {
  const { capturedAtMs } = moments;
  const since = (/** @type {number | null} */ atMs) => {
    return atMs === null || capturedAtMs === null ? null : atMs - capturedAtMs;
  };
  return {
    number,
    generation,
    server: moments.server,
    receivedMs: since(moments.receivedAtMs),
    renderedMs: since(moments.renderedAtMs),
    outputLatencyMs: moments.outputLatencyMs,
  };
}
