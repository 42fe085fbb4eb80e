/** The conversation's lines on the page. Elements are kept and changed, never rebuilt: readers may select in them. */

import { say } from '../i18n/words.js';
import { byId, make } from './elements.js';

/** @typedef {import('../core/captions.js').Line} Line */

const NEAR_END_PX = 80;

export class CaptionsView {
  #scroller = byId('captions', HTMLElement);
  #list = byId('lines', HTMLOListElement);
  #announcer = byId('announcer', HTMLElement);
  /** @type {Map<string, { element: HTMLLIElement, shown: string }>} */ #shown = new Map();
  /** @type {Set<string>} */ #announced = new Set();

  /**
   * @param {readonly Line[]} lines
   * @param {string} botName
   */
  show(lines, botName) {
    const { scrollTop, clientHeight, scrollHeight } = this.#scroller;
    const following = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    const visible = lines.filter((line) => line.text !== '');
    this.#forget(new Set(visible.map((line) => line.id)));
    visible.forEach((line, index) => this.#showLine(line, botName, index));
    if (following) this.#scroller.scrollTop = this.#scroller.scrollHeight;
  }

  /** @param {Set<string>} kept */
  #forget(kept) {
    for (const [id, { element }] of this.#shown) {
      if (kept.has(id)) continue;
      element.remove();
      this.#shown.delete(id);
    }
  }

  /**
   * @param {Line} line
   * @param {string} botName
   * @param {number} index
   */
  #showLine(line, botName, index) {
    const known = this.#shown.get(line.id);
    const element = known?.element ?? make('li', 'line');
    if (this.#list.children[index] !== element) this.#list.insertBefore(element, this.#list.children[index] ?? null);
    const shown = JSON.stringify([line, botName, say('you')]);
    if (known?.shown === shown) return;
    element.dataset['role'] = line.role;
    element.dataset['state'] = line.final ? 'final' : 'partial';
    element.replaceChildren(make('span', 'speaker', line.role === 'user' ? say('you') : botName), words(line));
    this.#shown.set(line.id, { element, shown });
    this.#announce(line, botName);
  }

  /**
   * Screen readers hear each line once, when it stands.
   *
   * @param {Line} line
   * @param {string} botName
   */
  #announce(line, botName) {
    if (!line.final || this.#announced.has(line.id)) return;
    this.#announced.add(line.id);
    this.#announcer.append(make('p', '', `${line.role === 'user' ? say('you') : botName}: ${line.text}`));
  }
}

/** @param {Line} line */
function words(line) {
  const paragraph = make('p', 'words', line.text.slice(0, line.heardLength));
  const unheard = line.text.slice(line.heardLength);
  if (unheard) {
    const rest = make('span', line.interrupted ? 'unheard cut' : 'unheard', unheard);
    rest.title = say('heardUntil');
    paragraph.append(rest);
  }
  if (line.interrupted) paragraph.append(' ', make('span', 'tag', say('interrupted')));
  if (line.role === 'user' && !line.spoken) paragraph.append(' ', make('span', 'tag', say('typed')));
  return paragraph;
}
