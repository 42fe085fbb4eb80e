/** Speech → loudspeaker. All decisions are `core/playout.js`'s; here they meet the audio thread and its port. */

import { fromPcm16, rms } from '../core/pcm.js';
import { Playout } from '../core/playout.js';

const REPORT_EVERY_S = 0.1;
const LEVEL_EVERY_S = 1 / 30;

/** @typedef {import('../core/playback-messages.js').PlaybackCommand} PlaybackCommand */
/** @typedef {import('../core/playback-messages.js').PlaybackNews} PlaybackNews */

class PlaybackProcessor extends AudioWorkletProcessor {
  #playout = new Playout(sampleRate);
  #nextReportS = 0;
  #nextLevelS = 0;
  #energy = 0;
  #quiet = true;

  constructor() {
    super();
    this.port.onmessage = (event) => this.#obey(/** @type {PlaybackCommand} */ (event.data));
  }

  /**
   * @param {Float32Array[][]} _inputs
   * @param {Float32Array[][]} outputs
   * @returns {boolean}
   */
  process(_inputs, outputs) {
    const [first, ...others] = outputs[0];
    if (!first) return true;
    for (const { kind, generation, playedSamples, offset } of this.#playout.render(first)) {
      this.#tell({ kind, generation, playedSamples, atS: currentTime + offset / sampleRate });
    }
    for (const channel of others) channel.set(first);
    this.#report();
    this.#measure(first);
    return true;
  }

  /** @param {PlaybackCommand} command */
  #obey(command) {
    const playout = this.#playout;
    if (command.kind === 'begin') playout.begin(command.generation, command.rateHz);
    else if (command.kind === 'samples') {
      playout.write(command.generation, command.startSample, fromPcm16(command.pcm));
    } else if (command.kind === 'end') playout.end(command.generation);
    else if (command.kind === 'flush') playout.flush(command.floor);
    else if (command.kind === 'reset') playout.reset();
    else playout.duck(command.ducked);
  }

  #report() {
    const track = this.#playout.current;
    if (!track?.started || currentTime < this.#nextReportS) return;
    this.#nextReportS = currentTime + REPORT_EVERY_S;
    this.#tell({
      kind: 'progress',
      generation: track.generation,
      playedSamples: track.playedSamples,
      underruns: this.#playout.underruns,
      staleFrames: this.#playout.staleFrames,
    });
  }

  /** @param {Float32Array} block */
  #measure(block) {
    const level = rms(block);
    this.#energy += level * level * block.length;
    if (currentTime < this.#nextLevelS || (level === 0 && this.#quiet)) return;
    this.#nextLevelS = currentTime + LEVEL_EVERY_S;
    this.#quiet = level === 0;
    this.#tell({ kind: 'level', level, energy: this.#energy });
  }

  /** @param {PlaybackNews} news */
  #tell(news) {
    this.port.postMessage(news);
  }
}

registerProcessor('duolog-playback', PlaybackProcessor);
