/** The user's way to the server: microphone frames, mute, push-to-talk. */

import { encodeMicrophoneFrame } from '../core/frames.js';

/** How long is still listened after the talk key was let go: people let go early. */
const RELEASE_TAIL_MS = 150;
/** Less than this is a slip of the finger, not a turn. */
const SHORTEST_TURN_SAMPLES = 16_000 * 0.25;

/**
 * @typedef {object} ListenerPorts
 * @property {(message: import('../core/wire.js').WireMessage) => void} send
 * @property {(frame: ArrayBuffer) => boolean} sendFrame
 * @property {import('../core/capture-map.js').CaptureMap} captured
 */

export class Listener {
  /** @type {ListenerPorts} */ #ports;
  #sequence = 0;
  #muted = false;
  #pushToTalk = false;
  #open = false;
  /** Frames sent before the session stands would be counted by one side only. */
  #connected = false;
  #turnSamples = 0;
  /** @type {number | undefined} */ #tail;
  /** @type {unknown} how the server finds turns by itself, as it said */ #turnDetection;
  level = 0;
  /** @type {import('../core/call-record.js').MicrophoneCounts} */
  counts = { sentFrames: 0, droppedFrames: 0 };

  /** @param {ListenerPorts} ports */
  constructor(ports) {
    this.#ports = ports;
  }

  /**
   * @param {Int16Array} samples
   * @param {number} level
   * @param {number | null} capturedAtMs
   */
  frame(samples, level, capturedAtMs) {
    this.level = this.#muted ? 0 : level;
    if (!this.#connected || (this.#pushToTalk && !this.#open)) return;
    if (this.#muted) samples.fill(0);
    if (!this.#ports.sendFrame(encodeMicrophoneFrame(this.#sequence, samples))) {
      this.counts.droppedFrames += 1;
      return;
    }
    this.#sequence += 1;
    this.counts.sentFrames += 1;
    this.#turnSamples += samples.length;
    this.#ports.captured.add(samples.length, capturedAtMs ?? performance.now());
  }

  /** @param {boolean} muted */
  mute(muted) {
    this.#muted = muted;
    this.#ports.send({ type: 'duolog.mute', muted });
  }

  /** @param {boolean} enabled */
  pushToTalk(enabled) {
    this.#pushToTalk = enabled;
    this.#open = false;
    this.#ports.send({ type: 'input_audio_buffer.clear' });
    this.#announceTurnDetection();
  }

  press() {
    window.clearTimeout(this.#tail);
    this.#turnSamples = 0;
    this.#open = true;
  }

  release() {
    window.clearTimeout(this.#tail);
    this.#tail = window.setTimeout(() => this.#finishTurn(), RELEASE_TAIL_MS);
  }

  /**
   * A new line: it counts anew and knows nothing of the settings.
   *
   * @param {unknown} turnDetection the session's own
   */
  connected(turnDetection) {
    this.#sequence = 0;
    this.#connected = true;
    this.#ports.captured.reset();
    this.#turnDetection = turnDetection;
    if (this.#muted) this.mute(true);
    if (this.#pushToTalk) this.#announceTurnDetection();
  }

  disconnected() {
    window.clearTimeout(this.#tail);
    this.#connected = false;
    this.#open = false;
  }

  #announceTurnDetection() {
    const turn_detection = this.#pushToTalk ? null : this.#turnDetection;
    if (turn_detection === undefined) return;
    this.#ports.send({ type: 'session.update', session: { type: 'realtime', audio: { input: { turn_detection } } } });
  }

  #finishTurn() {
    this.#open = false;
    if (this.#turnSamples < SHORTEST_TURN_SAMPLES) {
      this.#ports.send({ type: 'input_audio_buffer.clear' });
      return;
    }
    this.#ports.send({ type: 'input_audio_buffer.commit' });
    this.#ports.send({ type: 'response.create' });
  }
}
