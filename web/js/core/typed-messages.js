/**
 * Typed messages until the server has acknowledged them: after a broken line they are sent again, with the ids they had,
 * so that none is lost and none arrives twice. Pure: what is to be sent is returned.
 */

import { textAt } from './wire.js';

/** @typedef {import('./wire.js').WireMessage} WireMessage */

const ASKED_BY = 'asked_by';

/**
 * @typedef {object} Waiting
 * @property {WireMessage} message
 * @property {boolean} resent
 * @property {string} responseId of the answer that was begun for it; empty before
 */

export class TypedMessages {
  /** @type {Waiting[]} in the order in which they were typed */ #waiting = [];
  /** @type {() => string} */ #newId;

  /** @param {() => string} newId gives an id that no other message has */
  constructor(newId) {
    this.#newId = newId;
  }

  /**
   * @param {string} text
   * @returns {WireMessage[]} to be sent now; if the line is down they go with `again`
   */
  write(text) {
    const content = [{ type: 'input_text', text }];
    const id = `item_${this.#newId()}`;
    const item = { id, type: 'message', role: 'user', content };
    return [this.#keep({ type: 'conversation.item.create', event_id: `create_${id}`, item }), this.#ask()];
  }

  /** @returns {WireMessage[]} what a new line is to be sent first */
  again() {
    this.#waiting = this.#waiting.map((one) => ({ ...one, resent: true, responseId: '' }));
    return this.#waiting.map(({ message }) => message);
  }

  /** The user wants no answer any more. */
  interrupted() {
    this.#waiting = this.#waiting.filter(({ message }) => message.type !== 'response.create');
  }

  /**
   * @param {WireMessage} message from the server
   * @returns {WireMessage[]} to be sent now: the request for an answer that the broken line cut off unheard
   */
  received(message) {
    switch (message.type) {
      case 'conversation.item.added':
        this.#forget(({ message: { item } }) => item !== undefined && textAt(item, 'id') === textAt(message, 'item', 'id'));
        return [];
      case 'error':
        this.#forget((one) => one.message['event_id'] === textAt(message, 'error', 'event_id'));
        return [];
      case 'response.created':
        this.#begun(message);
        return [];
      case 'response.output_item.added':
        this.#forget(({ responseId }) => responseId !== '' && responseId === textAt(message, 'response_id'));
        return [];
      case 'response.done':
        return this.#ended(message);
      default:
        return [];
    }
  }

  /** @param {WireMessage} message */
  #keep(message) {
    this.#waiting.push({ message, resent: false, responseId: '' });
    return message;
  }

  #ask() {
    const id = `ask_${this.#newId()}`;
    return this.#keep({ type: 'response.create', event_id: id, response: { metadata: { [ASKED_BY]: id } } });
  }

  /** @param {(one: Waiting) => boolean} acknowledged */
  #forget(acknowledged) {
    this.#waiting = this.#waiting.filter((one) => !acknowledged(one));
  }

  /** @param {WireMessage} message */
  #begun(message) {
    const askedBy = textAt(message, 'response', 'metadata', ASKED_BY);
    const responseId = textAt(message, 'response', 'id');
    this.#waiting = this.#waiting
      .filter((one) => one.resent || one.message['event_id'] !== askedBy)
      .map((one) => (one.message['event_id'] === askedBy ? { ...one, responseId } : one));
  }

  /**
   * @param {WireMessage} message
   * @returns {WireMessage[]}
   */
  #ended(message) {
    const responseId = textAt(message, 'response', 'id');
    const asked = this.#waiting.find((one) => one.responseId !== '' && one.responseId === responseId);
    if (!asked) return [];
    this.#forget((one) => one === asked);
    const cutOff = textAt(message, 'response', 'status_details', 'reason') === 'client_cancelled';
    return cutOff ? [this.#ask()] : [];
  }
}
