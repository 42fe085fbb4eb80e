/** The button, the dock, the persona picker and the state line. */

import { isCalling } from '../core/call-state.js';
import { audioDevices } from '../audio/microphone.js';
import { say } from '../i18n/words.js';
import { byId, make } from './elements.js';

/** @typedef {import('../core/call-state.js').CallState} CallState */
/** @typedef {import('../core/wire.js').Persona} Persona */
/** @typedef {import('../i18n/en.js').MessageKey} MessageKey */

const callButton = byId('call-button', HTMLButtonElement);
const callLabel = byId('call-label', HTMLElement);
const stateLine = byId('state-line', HTMLElement);
const botName = byId('bot-name', HTMLElement);
const mute = byId('mute', HTMLButtonElement);
const hold = byId('hold', HTMLButtonElement);
const interrupt = byId('interrupt', HTMLButtonElement);
const hint = byId('captions-hint', HTMLElement);
const personas = byId('personas', HTMLFieldSetElement);
const personaList = byId('persona-list', HTMLElement);
const inputSelect = byId('input-device', HTMLSelectElement);
const outputSelect = byId('output-device', HTMLSelectElement);
const pushToTalk = byId('push-to-talk', HTMLInputElement);

/**
 * @param {CallState} state
 * @param {string} name the persona's
 * @param {string} language the persona's first
 */
export function showControls(state, name, language) {
  const calling = isCalling(state);
  document.body.dataset['phase'] = state.phase;
  document.body.dataset['mood'] = mood(state);
  setText(callLabel, say(calling ? 'hangUp' : state.sessionId === null ? 'call' : 'callAgain'));
  callButton.dataset['calling'] = String(calling);
  setText(stateLine, say(stateKey(state)));
  setText(botName, name);
  botName.lang = language;
  setText(mute, say(state.muted ? 'unmute' : 'mute'));
  mute.ariaPressed = String(state.muted);
  mute.disabled = state.microphone === 'without';
  hold.hidden = !state.pushToTalk;
  hold.ariaPressed = String(state.talking);
  interrupt.disabled = !(state.playing || state.activity === 'thinking') || state.phase !== 'live';
  pushToTalk.checked = state.pushToTalk;
  personas.hidden = personaList.childElementCount === 0 || calling || state.lines.length > 0 && state.phase !== 'ended';
  hint.hidden = state.phase !== 'live' || state.lines.some((line) => line.text !== '');
  setText(hint, say(hintKey(state)));
}

/**
 * What the ring shows; nothing but `listening` and its like while the line is up.
 *
 * @param {CallState} state
 */
export function mood(state) {
  if (state.phase !== 'live') return state.phase;
  if (state.playing && state.activity !== 'hearing') return 'speaking';
  return state.activity;
}

/**
 * @param {CallState} state
 * @returns {MessageKey}
 */
function stateKey(state) {
  // A call that was never answered has not ended either.
  if (state.phase === 'ended' && state.sessionId === null) return 'stateIdle';
  const shown = mood(state);
  if (shown === 'listening' && state.microphone === 'without') return 'stateTyping';
  if (shown === 'listening' && state.muted) return 'stateMuted';
  if (shown === 'listening' && state.pushToTalk) return state.talking ? 'stateHearing' : 'stateHold';
  return /** @type {MessageKey} */ (`state${shown[0].toUpperCase()}${shown.slice(1)}`);
}

/**
 * @param {CallState} state
 * @returns {MessageKey}
 */
function hintKey(state) {
  if (state.microphone === 'without') return 'captionsHintTyping';
  return state.pushToTalk ? 'captionsHintPush' : 'captionsHint';
}

/**
 * @param {HTMLElement} element
 * @param {string} text
 */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * @param {Persona[]} list
 * @param {{ chosen: string, isListMissing: boolean, onChoice: (id: string) => void }} options
 */
export function showPersonas(list, { chosen, isListMissing, onChoice }) {
  const cards = list.map((persona) => {
    const radio = make('input', '');
    radio.type = 'radio';
    radio.name = 'persona';
    radio.value = persona.id;
    radio.checked = persona.id === chosen;
    radio.onchange = () => onChoice(persona.id);
    const languages = make('span', 'persona-languages', persona.languages.join(' '));
    const name = make('span', 'persona-name', persona.name);
    name.lang = persona.languages[0] ?? '';
    return make('label', 'persona', radio, name, languages, make('span', 'persona-about', persona.description));
  });
  const missing = isListMissing && cards.length === 0 ? [make('p', 'fine', say('noPersonas'))] : [];
  personaList.replaceChildren(...cards, ...missing);
}

/**
 * @param {{ inputId: string, outputId: string, canChooseOutput: boolean }} chosen
 */
export async function showDevices({ inputId, outputId, canChooseOutput }) {
  const { inputs, outputs } = await audioDevices();
  fill(inputSelect, inputs, inputId);
  fill(outputSelect, outputs, outputId);
  outputSelect.disabled = !canChooseOutput;
  byId('output-fixed', HTMLElement).hidden = canChooseOutput;
}

/**
 * @param {HTMLSelectElement} select
 * @param {MediaDeviceInfo[]} devices
 * @param {string} chosen
 */
function fill(select, devices, chosen) {
  const named = devices.filter((device) => device.label !== '' && device.deviceId !== 'default');
  select.replaceChildren(
    new Option(say('systemDefault'), '', true, chosen === ''),
    ...named.map((device) => new Option(device.label, device.deviceId, false, device.deviceId === chosen)),
  );
}
