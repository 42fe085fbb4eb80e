/**
 * Reads the list of personas until it has been read: the page may be open before the server answers, or while it
 * restarts. Tries come ever less often, and none while nobody looks.
 */

import { MAX_ATTEMPTS, reconnectDelayMs } from '../core/backoff.js';

/** @typedef {import('./server.js').PersonaAnswer} PersonaAnswer */

/**
 * @typedef {object} ReaderPorts
 * @property {() => Promise<PersonaAnswer | null>} fetch null: not to be had now
 * @property {(answer: PersonaAnswer | null) => void} onAnswer after each try
 * @property {() => boolean} isSeen whether somebody looks at the page
 */

export class PersonaReader {
  /** @type {ReaderPorts} */ #ports;
  #isRead = false;
  #attempt = 0;
  /** Grows with each try: what an older one still brings is void. */
  #epoch = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */ #timer;

  /** @param {ReaderPorts} ports */
  constructor(ports) {
    this.#ports = ports;
  }

  /** Read it now, also where it has been read before: another key may show another list. */
  read() {
    this.#attempt = 0;
    void this.#try();
  }

  /** The server may be there now, or somebody looks again: a waiting try does not wait any longer. */
  hurry() {
    if (!this.#isRead && this.#epoch > 0) void this.#try();
  }

  async #try() {
    clearTimeout(this.#timer);
    this.#epoch += 1;
    const epoch = this.#epoch;
    const answer = await this.#ports.fetch();
    if (epoch !== this.#epoch) return;
    this.#isRead = answer !== null;
    this.#ports.onAnswer(answer);
    if (answer === null) this.#tryLater();
  }

  #tryLater() {
    this.#attempt = Math.min(this.#attempt + 1, MAX_ATTEMPTS);
    const delayMs = reconnectDelayMs(this.#attempt, Math.random()) ?? 0;
    this.#timer = setTimeout(() => this.#ports.isSeen() && void this.#try(), delayMs);
  }
}
