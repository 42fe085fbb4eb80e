/** Keys of the page: the space bar talks, Escape closes the sheet it is pressed in or interrupts, M mutes, L opens the overlay. Typing is left alone. */

/**
 * @typedef {object} KeyActions
 * @property {() => boolean} wantsSpace whether the space bar means talking just now
 * @property {(down: boolean) => void} talk
 * @property {() => void} escape
 * @property {() => void} mute
 * @property {() => void} overlay
 */

/** @param {KeyActions} actions */
export function listenToKeys(actions) {
  let held = false;
  const release = () => {
    if (held) actions.talk(false);
    held = false;
  };
  document.addEventListener('keydown', (event) => {
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.code === 'Space' && actions.wantsSpace()) {
      event.preventDefault();
      if (!event.repeat) actions.talk(true);
      held = true;
    } else if (!event.repeat) press(event.key, actions);
  });
  document.addEventListener('keyup', (event) => {
    if (event.code !== 'Space' || !held) return;
    event.preventDefault();
    release();
  });
  window.addEventListener('blur', release);
}

/**
 * @param {string} key
 * @param {KeyActions} actions
 */
function press(key, actions) {
  if (key === 'Escape') actions.escape();
  else if (key === 'm') actions.mute();
  else if (key === 'l') actions.overlay();
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !['checkbox', 'radio'].includes(target.type);
  return target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement;
}
