/** The answer's way from the socket to the loudspeaker: playback, playout reports, flushes, and when each happened. */

import { decodeSpeechFrame } from '../core/frames.js';
import { numberAt, textAt, turnTimings } from '../core/wire.js';

/** @typedef {import('../core/wire.js').WireMessage} WireMessage */
/** @typedef {import('../core/playback-messages.js').PlaybackCommand} PlaybackCommand */
/** @typedef {import('../core/playback-messages.js').PlaybackNews} PlaybackNews */
/** @typedef {import('../core/playback-messages.js').PlaybackNotice} PlaybackNotice */

/**
 * @typedef {object} SpeakerPorts
 * @property {(command: PlaybackCommand) => void} play
 * @property {(message: WireMessage) => void} send
 * @property {(audioS: number) => number | null} pageMs
 * @property {() => number | null} outputLatencyMs
 * @property {(action: import('../core/call-state.js').Action) => void} dispatch
 * @property {import('../core/turn-log.js').TurnLog} log
 * @property {import('../core/capture-map.js').CaptureMap} captured
 */

export class Speaker {
  /** @type {SpeakerPorts} */ #ports;
  /** @type {Map<string, number>} newest generation of each item and response */ #generationOf = new Map();
  #newest = 0;
  #floor = 0;
  #playing = false;
  level = 0;
  /** @type {import('../core/call-record.js').PlayoutCounts} */
  counts = { receivedFrames: 0, staleFrames: 0, underruns: 0, reports: 0, energy: 0, played: {} };

  /** @param {SpeakerPorts} ports */
  constructor(ports) {
    this.#ports = ports;
  }

  /** @param {ArrayBuffer} bytes */
  frame(bytes) {
    const frame = decodeSpeechFrame(bytes);
    if (!frame) return;
    if (frame.generation < this.#floor) {
      this.counts.staleFrames += 1;
      return;
    }
    this.counts.receivedFrames += 1;
    this.#ports.log.frameReceived(frame.generation, performance.now());
    const { generation, startSample, samples: pcm } = frame;
    this.#ports.play({ kind: 'samples', generation, startSample, pcm });
  }

  /** @param {WireMessage} message */
  message(message) {
    const { play, log, captured } = this.#ports;
    if (message.type === 'duolog.speech.started') this.#announced(message);
    else if (message.type === 'response.output_audio.done') this.#ended(textAt(message, 'item_id'));
    else if (message.type === 'response.done') this.#ended(textAt(message, 'response', 'id'));
    else if (message.type === 'duolog.flush') this.#flush(numberAt(message, 'generation') ?? 0);
    else if (message.type === 'duolog.state') {
      play({ kind: 'duck', ducked: textAt(message, 'state') === 'hearing' });
    } else if (message.type === 'duolog.turn.timings') {
      const timings = turnTimings(message);
      log.timings(timings, captured.capturedAtMs(timings.speechEndSample));
    }
  }

  /** The user wants silence now, whatever the server is about to say. */
  silence() {
    this.#flush(this.#newest + 1);
  }

  /** The line broke: nothing of it may sound on, and the next one counts anew. */
  reset() {
    this.#ports.play({ kind: 'reset' });
    this.#ports.log.reconnected();
    this.#generationOf.clear();
    this.#newest = 0;
    this.#floor = 0;
    this.#playing = false;
  }

  /** @param {PlaybackNews} news */
  playback(news) {
    if (news.kind === 'level') {
      this.level = news.level;
      this.counts.energy = news.energy;
      return;
    }
    if (news.generation > this.#newest) return;
    this.counts.played[news.generation] = news.playedSamples;
    if (news.kind === 'progress') {
      this.counts.underruns = news.underruns;
      this.#report(news.generation, news.playedSamples, false);
    } else this.#happened(news);
  }

  /** @param {PlaybackNotice} news */
  #happened(news) {
    const { dispatch, log, outputLatencyMs } = this.#ports;
    if (news.kind === 'underrun') return;
    const atMs = this.#ports.pageMs(news.atS);
    this.#playing = news.kind === 'started';
    if (news.kind === 'started') {
      if (atMs !== null) log.rendered(news.generation, atMs, outputLatencyMs());
    } else {
      // The news is younger than the silence it tells of: an upper bound.
      if (news.kind === 'flushed') log.silenced(performance.now());
      if (news.kind === 'ended') dispatch({ kind: 'playedOut', generation: news.generation });
      this.#report(news.generation, news.playedSamples, true);
    }
    dispatch({ kind: 'playing', playing: this.#playing });
  }

  /** @param {WireMessage} message */
  #announced(message) {
    const generation = numberAt(message, 'generation') ?? 0;
    this.#newest = Math.max(this.#newest, generation);
    this.#generationOf.set(textAt(message, 'item_id'), generation);
    this.#generationOf.set(textAt(message, 'response_id'), generation);
    this.#ports.play({ kind: 'begin', generation, rateHz: numberAt(message, 'sample_rate_hz') ?? 24_000 });
  }

  /** @param {string} id an item's or a response's */
  #ended(id) {
    const generation = this.#generationOf.get(id);
    if (generation !== undefined) this.#ports.play({ kind: 'end', generation });
  }

  /** @param {number} generation the lowest that may still be heard */
  #flush(generation) {
    if (this.#playing) this.#ports.log.flushDecided(generation, performance.now());
    this.#floor = Math.max(this.#floor, generation);
    this.#ports.play({ kind: 'flush', floor: generation });
  }

  /**
   * @param {number} generation
   * @param {number} playedSamples
   * @param {boolean} ended
   */
  #report(generation, playedSamples, ended) {
    this.counts.reports += 1;
    this.#ports.send({ type: 'duolog.playout.report', generation, played_samples: playedSamples, ended });
  }
}
