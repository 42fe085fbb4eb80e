/** What went wrong, in words that help, with the buttons that mend it. */

import { say } from '../i18n/words.js';
import { byId, make, makeButton } from './elements.js';

/** @typedef {import('../core/call-state.js').CallState} CallState */
/** @typedef {import('../i18n/en.js').MessageKey} MessageKey */

/**
 * @typedef {object} NoticeActions
 * @property {(withMicrophone: boolean) => void} start
 * @property {() => void} retryNow
 * @property {() => void} resumeSound
 * @property {() => void} dismiss
 * @property {(key: string) => void} useKey
 */

export class NoticeView {
  #element = byId('notice', HTMLElement);
  /** @type {NoticeActions} */ #actions;
  #shown = '';
  /** @type {number | null} */ #retryAtMs = null;

  /** @param {NoticeActions} actions */
  constructor(actions) {
    this.#actions = actions;
    window.setInterval(() => this.#count(), 250);
  }

  /** @param {CallState} state */
  show(state) {
    const kind = state.phase === 'warming' ? 'warming' : state.fault?.kind;
    this.#retryAtMs = state.retryAtMs;
    const shown = JSON.stringify([kind, state.fault, state.phase, state.warmingParts, say('dismiss')]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#element.hidden = kind === undefined;
    this.#element.dataset['kind'] = kind ?? '';
    if (kind) this.#element.replaceChildren(...this.#content(kind, state));
    this.#count();
  }

  /**
   * @param {import('../core/faults.js').FaultKind} kind
   * @param {CallState} state
   */
  #content(kind, state) {
    const name = kind[0].toUpperCase() + kind.slice(1);
    const forGood = kind === 'gone' && state.phase === 'ended';
    const help = /** @type {MessageKey} */ (forGood ? 'faultGoneForGood' : `fault${name}Help`);
    /** @type {HTMLElement[]} */
    const parts = [
      make('h2', 'notice-title', say(/** @type {MessageKey} */ (`fault${name}`))),
      make('p', 'notice-help', say(help)),
    ];
    const { detail, retryAfterS } = state.fault ?? {};
    if (detail) parts.push(make('p', 'fine', say('serverSays', { detail })));
    if (retryAfterS) parts.push(make('p', 'fine', say('retryAfter', { seconds: Math.ceil(retryAfterS) })));
    if (kind === 'warming') parts.push(warmingList(state));
    if (state.phase === 'reconnecting') parts.push(countdownLine());
    const row = kind === 'keyRefused' ? this.#keyForm() : make('p', 'notice-actions', ...this.#buttons(kind, state));
    return [...parts, row];
  }

  /**
   * @param {import('../core/faults.js').FaultKind} kind
   * @param {CallState} state
   * @returns {HTMLElement[]}
   */
  #buttons(kind, state) {
    const { start, retryNow, resumeSound, dismiss } = this.#actions;
    const again = makeButton(say('tryAgain'), () => start(true), 'tool strong');
    const typing = makeButton(say('typeInstead'), () => start(false));
    const close = makeButton(say('dismiss'), dismiss);
    if (kind.startsWith('microphone') && kind !== 'microphoneLost') return [again, typing];
    if (kind === 'insecure') return [typing];
    if (kind === 'full' || kind === 'refused' || kind === 'expired') return [again];
    if (kind === 'gone') {
      return [state.phase === 'reconnecting' ? makeButton(say('retryNow'), retryNow, 'tool strong') : again];
    }
    if (kind === 'audioInterrupted') return [makeButton(say('resumeSound'), resumeSound, 'tool strong')];
    if (kind === 'microphoneLost' || kind === 'answerFailed') return [close];
    return [];
  }

  #keyForm() {
    const input = make('input', '');
    input.type = 'password';
    input.required = true;
    input.autocomplete = 'off';
    const label = make('label', 'key-label', make('span', '', say('keyLabel')), input);
    const submit = make('button', 'tool strong', say('useKey'));
    const form = make('form', 'notice-actions', label, submit);
    form.onsubmit = (event) => {
      event.preventDefault();
      this.#actions.useKey(input.value);
    };
    return form;
  }

  #count() {
    const countdown = this.#element.querySelector('.countdown');
    if (!countdown || this.#retryAtMs === null) return;
    const seconds = Math.max(0, Math.ceil((this.#retryAtMs - performance.now()) / 1000));
    const text = say('retryIn', { seconds });
    if (countdown.textContent !== text) countdown.textContent = text;
  }
}

/** @param {CallState} state */
function warmingList(state) {
  const items = state.warmingParts.map((part) => {
    const detail = part.detail || say(part.ready ? 'partReady' : 'partWaiting');
    const item = make('li', '', make('b', '', part.name), ' ', make('span', '', detail));
    item.dataset['ready'] = String(part.ready);
    return item;
  });
  return make('ul', 'warming', ...items);
}

/** It changes each second: shown, but not read out anew. */
function countdownLine() {
  const line = make('p', 'countdown');
  line.ariaLive = 'off';
  return line;
}
