/** One socket of a call: JSON events and binary frames both ways, and a pulse that finds a dead line. */

import { parseMessage } from '../core/wire.js';

const PING_EVERY_MS = 4_000;
const SILENT_LINE_MS = 16_000;
const OPEN_WITHIN_MS = 12_000;
/** Two seconds of microphone: with that much unsent, older words are worth more than newer ones. */
const MOST_UNSENT_BYTES = 64_000;

/** @typedef {import('../core/wire.js').WireMessage} WireMessage */

/**
 * @typedef {object} ConnectionEvents
 * @property {(message: WireMessage) => void} onMessage
 * @property {(frame: ArrayBuffer) => void} onFrame
 * @property {(how: { opened: boolean, code: number, reason: string }) => void} onClosed once, and not after `close`
 */

export class Connection {
  /** @type {WebSocket} */ #socket;
  /** @type {ConnectionEvents} */ #events;
  #opened = false;
  #closed = false;
  #heardAtMs = performance.now();
  /** @type {number} */ #pulse;

  /**
   * @param {URL} url
   * @param {string[]} protocols
   * @param {ConnectionEvents} events
   */
  constructor(url, protocols, events) {
    this.#events = events;
    this.#socket = new WebSocket(url, protocols);
    this.#socket.binaryType = 'arraybuffer';
    this.#socket.onopen = () => this.#open();
    this.#socket.onmessage = (event) => this.#received(event.data);
    this.#socket.onclose = (event) => this.#gone(event.code, event.reason);
    this.#pulse = window.setInterval(() => this.#beat(), PING_EVERY_MS);
  }

  /** @param {WireMessage} message dropped while the line is not open */
  send(message) {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  /**
   * @param {ArrayBuffer} frame
   * @returns {boolean} false: not sent, as the line is closed or clogged
   */
  sendFrame(frame) {
    if (this.#socket.readyState !== WebSocket.OPEN || this.#socket.bufferedAmount > MOST_UNSENT_BYTES) return false;
    this.#socket.send(frame);
    return true;
  }

  close() {
    this.#finish();
    this.#socket.close(1000);
  }

  #open() {
    this.#opened = true;
    this.#heardAtMs = performance.now();
    this.#ping();
  }

  /** @param {unknown} payload */
  #received(payload) {
    if (this.#closed) return;
    this.#heardAtMs = performance.now();
    if (payload instanceof ArrayBuffer) {
      this.#events.onFrame(payload);
    } else if (typeof payload === 'string') {
      const message = parseMessage(payload);
      if (message) this.#events.onMessage(message);
    }
  }

  #beat() {
    const quietMs = performance.now() - this.#heardAtMs;
    if (this.#opened && quietMs < SILENT_LINE_MS) this.#ping();
    else if (quietMs >= (this.#opened ? SILENT_LINE_MS : OPEN_WITHIN_MS)) this.#abandon();
  }

  #ping() {
    this.send({ type: 'duolog.ping', client_time_ms: performance.now() });
  }

  /** A dead line may take minutes to close in order; it is left behind instead. */
  #abandon() {
    this.#socket.close();
    this.#gone(1006, '');
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #gone(code, reason) {
    if (this.#closed) return;
    this.#finish();
    this.#events.onClosed({ opened: this.#opened, code, reason });
  }

  #finish() {
    this.#closed = true;
    window.clearInterval(this.#pulse);
  }
}
