/** The page's language and its words. */

import { en } from './en.js';
import { zh } from './zh.js';

/** @typedef {import('./en.js').MessageKey} MessageKey */
/** @typedef {'en' | 'zh'} Language */

const WORDS = { en, zh };

/** @type {Language} */
let language = 'en';

/**
 * The first preferred language that the page speaks.
 *
 * @param {readonly string[]} preferred as `navigator.languages`
 * @returns {Language}
 */
export function preferredLanguage(preferred) {
  const known = preferred.map((tag) => tag.toLowerCase().split('-')[0]).find((tag) => tag === 'zh' || tag === 'en');
  return known === 'zh' ? 'zh' : 'en';
}

/** @returns {Language} */
export function currentLanguage() {
  return language;
}

/** @param {Language} wanted */
export function setLanguage(wanted) {
  language = wanted;
}

/**
 * @param {MessageKey} key
 * @param {Record<string, string | number>} [values] for `{name}` within the words
 * @returns {string}
 */
export function say(key, values = {}) {
  return WORDS[language][key].replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ''));
}

/**
 * Words of static elements: `data-say` for the text, `data-say-label` for the label, `data-say-placeholder`.
 *
 * @param {ParentNode} root
 */
export function sayAll(root) {
  const attributes = { 'data-say': 'textContent', 'data-say-label': 'ariaLabel', 'data-say-placeholder': 'placeholder' };
  for (const [attribute, property] of Object.entries(attributes)) {
    for (const element of root.querySelectorAll(`[${attribute}]`)) {
      Reflect.set(element, property, say(/** @type {MessageKey} */ (element.getAttribute(attribute))));
    }
  }
}
