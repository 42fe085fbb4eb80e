/** The page: builds the call and its views and ties them together. */

import { Call } from './call/call.js';
import { callRecord } from './core/call-record.js';
import { isCalling } from './core/call-state.js';
import { currentLanguage, preferredLanguage, say, sayAll, setLanguage } from './i18n/words.js';
import { PersonaReader } from './net/persona-reader.js';
import { fetchPersonas } from './net/server.js';
import { CaptionsView } from './ui/captions-view.js';
import { mood, showControls, showDevices, showPersonas } from './ui/controls.js';
import { byId, make } from './ui/elements.js';
import { listenToKeys } from './ui/keyboard.js';
import { NoticeView } from './ui/notice-view.js';
import { OverlayView } from './ui/overlay-view.js';
import { VoiceLine } from './ui/voice-line.js';

/** @typedef {import('./core/wire.js').Persona} Persona */
/** @typedef {import('./i18n/words.js').Language} Language */

const METERS_EVERY_MS = 250;
const LANGUAGE_KEY = 'duolog.language';
const PERSONA_KEY = 'duolog.persona';
/** What a voice is called while the list of personas is not there. */
const NAMELESS = 'Duolog';

/** @type {Persona[]} */
let personas = [];
/** Empty for the server's default, as long as the list is not there. */
let chosenPersona = '';
let isListMissing = false;
let drawn = true;

const call = new Call(() => {
  if (drawn) requestAnimationFrame(show);
  drawn = false;
});
const captions = new CaptionsView();
const overlay = new OverlayView(exportJson, show);
const notice = new NoticeView({
  start,
  retryNow: () => call.retryNow(),
  resumeSound: () => void call.resumeAudio(),
  dismiss: () => call.dispatch({ kind: 'dismiss' }),
  useKey,
});
const voiceLine = new VoiceLine(byId('voice-line', HTMLCanvasElement), () => ({
  levels: call.levels, mood: mood(call.state), live: call.state.phase === 'live',
}));

const reader = new PersonaReader({
  fetch: () => fetchPersonas(call.key),
  onAnswer: showList,
  isSeen: () => !document.hidden,
});

/** @param {string} id */
function personaOf(id) {
  return personas.find((persona) => persona.id === id);
}

function record() {
  const { state, log, roundTrips, counts, persona, contextRateHz } = call;
  return callRecord({ state, log, roundTrips, counts, persona, contextRateHz });
}

function show() {
  drawn = true;
  const answering = personaOf(isCalling(call.state) ? call.persona : chosenPersona);
  showControls(call.state, answering?.name ?? NAMELESS, answering?.languages[0] ?? '');
  captions.show(call.state.lines, personaOf(call.persona)?.name ?? NAMELESS);
  notice.show(call.state);
  overlay.show(call.log, call.roundTrips);
}

/** @param {boolean} withMicrophone */
function start(withMicrophone) {
  if (!withMicrophone) byId('message', HTMLInputElement).focus();
  void call.start(chosenPersona, { microphone: withMicrophone }).then(() => {
    reader.hurry();
    return refreshDevices();
  });
}

function refreshDevices() {
  const { inputId, outputId, canChooseOutput } = call;
  return showDevices({ inputId, outputId, canChooseOutput });
}

/** @param {import('./net/server.js').PersonaAnswer | null} answer null: it could not be read, and is tried again */
function showList(answer) {
  isListMissing = answer === null;
  if (answer) {
    personas = answer.personas;
    if (answer.keyRefused) call.dispatch({ kind: 'fault', fault: { kind: 'keyRefused' } });
    const wanted = chosenPersona || localStorage.getItem(PERSONA_KEY);
    chosenPersona = personas.find((persona) => persona.id === wanted)?.id ?? answer.defaultId;
  }
  showPersonaCards();
  show();
}

function showPersonaCards() {
  showPersonas(personas, { chosen: chosenPersona, isListMissing, onChoice: choosePersona });
}

/** @param {string} id */
function choosePersona(id) {
  chosenPersona = id;
  localStorage.setItem(PERSONA_KEY, id);
  show();
}

/** @param {string} key */
function useKey(key) {
  call.key = key;
  call.dispatch({ kind: 'dismiss' });
  reader.read();
}

/** @param {Language} language */
function speak(language) {
  setLanguage(language);
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
  sayAll(document);
  showPersonaCards();
  void refreshDevices();
  show();
}

function exportJson() {
  const body = { exportedAt: new Date().toISOString(), userAgent: navigator.userAgent, ...record() };
  const link = make('a', '');
  link.href = URL.createObjectURL(new Blob([JSON.stringify(body, null, 2)], { type: 'application/json' }));
  link.download = `duolog-call-${call.state.sessionId ?? 'none'}.json`;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function tieDock() {
  const hold = byId('hold', HTMLButtonElement);
  const message = byId('message', HTMLInputElement);
  byId('call-button', HTMLButtonElement).onclick = () => {
    if (isCalling(call.state)) call.hangUp();
    else start(true);
  };
  byId('mute', HTMLButtonElement).onclick = () => call.mute(!call.state.muted);
  byId('interrupt', HTMLButtonElement).onclick = () => call.interrupt();
  hold.onpointerdown = (event) => {
    hold.setPointerCapture(event.pointerId);
    call.talk(true);
  };
  hold.onpointerup = hold.onpointercancel = () => call.talk(false);
  hold.oncontextmenu = (event) => event.preventDefault();
  byId('message-form', HTMLFormElement).onsubmit = (event) => {
    event.preventDefault();
    if (message.value.trim() === '' || !isCalling(call.state)) return;
    call.say(message.value.trim());
    message.value = '';
  };
  const pushToTalk = byId('push-to-talk', HTMLInputElement);
  pushToTalk.onchange = () => call.pushToTalk(pushToTalk.checked);
  const input = byId('input-device', HTMLSelectElement);
  input.onchange = () => void call.chooseInput(input.value).then(refreshDevices);
  const output = byId('output-device', HTMLSelectElement);
  output.onchange = () => void call.chooseOutput(output.value);
}

function tiePage() {
  listenToKeys({
    wantsSpace: () => call.state.pushToTalk && call.state.phase === 'live',
    talk: (down) => call.talk(down),
    escape,
    mute: () => isCalling(call.state) && call.mute(!call.state.muted),
    overlay: () => overlay.open(!overlay.isOpen),
  });
  byId('language', HTMLButtonElement).onclick = () => {
    const other = currentLanguage() === 'zh' ? 'en' : 'zh';
    localStorage.setItem(LANGUAGE_KEY, other);
    speak(other);
  };
  navigator.mediaDevices?.addEventListener('devicechange', () => {
    void call.devicesChanged();
    void refreshDevices();
  });
  for (const event of ['visibilitychange', 'pointerdown']) {
    document.addEventListener(event, () => document.hidden || void call.resumeAudio());
  }
  document.addEventListener('visibilitychange', () => document.hidden || reader.hurry());
  window.addEventListener('online', () => reader.hurry());
  window.addEventListener('pagehide', () => call.hangUp());
}

function escape() {
  const settings = byId('settings', HTMLDetailsElement);
  if (overlay.holdsFocus) overlay.open(false);
  else if (settings.open && settings.contains(document.activeElement)) {
    settings.open = false;
    settings.querySelector('summary')?.focus();
  } else if (call.state.playing) call.interrupt();
}

function showMeters() {
  const { user, assistant } = voiceLine.needles;
  byId('meter-user', HTMLElement).ariaValueNow = String(Math.round(user * 100));
  byId('meter-assistant', HTMLElement).ariaValueNow = String(Math.round(assistant * 100));
}

/** `#key=…` is taken once and removed from the address, so that it is not shared with a link. */
function takeKey() {
  const key = new URLSearchParams(window.location.hash.slice(1)).get('key');
  if (!key) return;
  call.key = key;
  window.history.replaceState(null, '', window.location.pathname + window.location.search);
}

takeKey();
tieDock();
tiePage();
window.setInterval(showMeters, METERS_EVERY_MS);
const remembered = localStorage.getItem(LANGUAGE_KEY);
speak(remembered === 'zh' || remembered === 'en' ? remembered : preferredLanguage(navigator.languages));
document.title = say('title');
reader.read();
/** For tests, and for the curious: a copy of what the page knows. */
Object.defineProperty(window, 'duolog', { value: Object.freeze({ snapshot: record }) });
