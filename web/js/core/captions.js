/**
 * The conversation as lines of text. Pure: each function takes the lines and returns new ones.
 *
 * The user's words grow while they are recognised and are replaced by the final transcript; the answer's words grow as
 * they are made, and a mark moves through them as they are heard.
 */

/**
 * @typedef {object} Line
 * @property {string} id the conversation item's
 * @property {'user' | 'assistant'} role
 * @property {string} text
 * @property {boolean} final no more words will come, and these stand
 * @property {boolean} spoken false: typed, or an answer in writing
 * @property {number} heardLength how much of the text was heard, in characters; of the user's lines all
 * @property {boolean} interrupted
 */

/**
 * Merge `change` into a line, adding the line where it is new.
 *
 * @param {readonly Line[]} lines
 * @param {string} id
 * @param {Line['role']} role
 * @param {(line: Line) => Partial<Line>} change
 * @returns {Line[]}
 */
export function withLine(lines, id, role, change) {
  const index = lines.findIndex((line) => line.id === id);
  if (index >= 0) return lines.map((line, at) => (at === index ? { ...line, ...change(line) } : line));
  /** @type {Line} */
  const fresh = { id, role, text: '', final: false, spoken: true, heardLength: 0, interrupted: false };
  return [...lines, { ...fresh, ...change(fresh) }];
}

/**
 * As `withLine`, but an unknown id changes nothing.
 *
 * @param {readonly Line[]} lines
 * @param {string} id
 * @param {(line: Line) => Partial<Line>} change
 * @returns {Line[]}
 */
export function withKnownLine(lines, id, change) {
  return lines.map((line) => (line.id === id ? { ...line, ...change(line) } : line));
}

/**
 * Where in `text` the heard words end. What was heard comes back as spoken text, so only letters and digits are
 * compared: spaces and punctuation may differ.
 *
 * @param {string} text
 * @param {string} heard
 * @returns {number} characters of `text`
 */
export function heardLength(text, heard) {
  const letters = (/** @type {string} */ part) => part.replace(/[^\p{L}\p{N}]/gu, '').length;
  const wanted = letters(heard);
  if (wanted === 0) return 0;
  let seen = 0;
  let position = 0;
  for (const character of text) {
    if (seen >= wanted && /[\p{L}\p{N}\s]/u.test(character)) return position;
    seen += letters(character);
    position += character.length;
  }
  return seen >= wanted ? text.length : position;
}

/**
 * The text content of a conversation item, whatever its parts are called.
 *
 * @param {unknown} content list of parts
 * @returns {string}
 */
export function itemText(content) {
  if (!Array.isArray(content)) return '';
  return content
    .map((part) => part?.text ?? part?.transcript ?? '')
    .filter((text) => typeof text === 'string')
    .join('');
}
