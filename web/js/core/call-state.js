/**
 * What the page shows, as one value that changes only here. Pure: (state, action) → state.
 *
 * Phases: idle → starting → [warming] → connecting → live ⇄ reconnecting → ended; `hangUp` leads to `ended` from each.
 * An action that has no meaning in the present phase changes nothing.
 */

import { heardLength, itemText, withKnownLine, withLine } from './captions.js';
import { endsCall, errorFault } from './faults.js';
import { flagAt, numberAt, textAt } from './wire.js';

/** @typedef {import('./captions.js').Line} Line */
/** @typedef {import('./faults.js').Fault} Fault */
/** @typedef {import('./wire.js').WireMessage} WireMessage */
/** @typedef {'idle' | 'starting' | 'warming' | 'connecting' | 'live' | 'reconnecting' | 'ended'} Phase */
/** @typedef {'listening' | 'hearing' | 'thinking' | 'speaking'} Activity */

/**
 * @typedef {object} CallState
 * @property {Phase} phase
 * @property {Activity} activity
 * @property {string | null} sessionId
 * @property {boolean} resumed
 * @property {Fault | null} fault
 * @property {import('./faults.js').ReadyPart[]} warmingParts
 * @property {number | null} retryAtMs
 * @property {Line[]} lines
 * @property {{ generation: number, itemId: string, rateHz: number } | null} speech the newest generation announced
 * @property {boolean} playing whether speech is being rendered
 * @property {'off' | 'on' | 'without'} microphone `without`: the call goes on by typing
 * @property {boolean} muted
 * @property {boolean} pushToTalk
 * @property {boolean} talking the push-to-talk key is held
 */

/**
 * @typedef {{ kind: 'start' } | { kind: 'connect' } | { kind: 'hangUp' } | { kind: 'dismiss' }
 *   | { kind: 'warming', parts: import('./faults.js').ReadyPart[] }
 *   | { kind: 'fault', fault: Fault } | { kind: 'retryAt', atMs: number }
 *   | { kind: 'message', message: WireMessage }
 *   | { kind: 'microphone', microphone: CallState['microphone'] }
 *   | { kind: 'muted', muted: boolean } | { kind: 'pushToTalk', enabled: boolean }
 *   | { kind: 'talking', talking: boolean }
 *   | { kind: 'playing', playing: boolean } | { kind: 'playedOut', generation: number }} Action
 */

const ACTIVITIES = ['listening', 'hearing', 'thinking', 'speaking'];

/** @type {CallState} */
export const INITIAL_STATE = {
  phase: 'idle', activity: 'listening', sessionId: null, resumed: false, fault: null, warmingParts: [],
  retryAtMs: null, lines: [], speech: null, playing: false, microphone: 'off', muted: false, pushToTalk: false,
  talking: false,
};

/**
 * @param {CallState} state
 * @param {Action} action
 * @returns {CallState}
 */
export function reduce(state, action) {
  switch (action.kind) {
    case 'start':
      return started(state);
    case 'connect':
      return isCalling(state) ? { ...state, phase: 'connecting', warmingParts: [] } : state;
    case 'warming':
      return isCalling(state) ? { ...state, phase: 'warming', warmingParts: action.parts } : state;
    case 'retryAt':
      return isCalling(state) ? { ...lineDown(state), phase: 'reconnecting', retryAtMs: action.atMs } : state;
    case 'hangUp':
      return { ...lineDown(state), phase: 'ended', fault: null, microphone: 'off' };
    case 'fault':
      return faulted(state, action.fault);
    case 'dismiss':
      return { ...state, fault: null };
    case 'message':
      return isCalling(state) ? received(state, action.message) : state;
    case 'playedOut':
      return playedOut(state, action.generation);
    case 'microphone':
      return { ...state, microphone: action.microphone };
    case 'muted':
      return { ...state, muted: action.muted };
    case 'pushToTalk':
      return { ...state, pushToTalk: action.enabled, talking: false };
    case 'talking':
      return { ...state, talking: state.pushToTalk && action.talking };
    case 'playing':
      return { ...state, playing: action.playing };
  }
}

/**
 * Whether a call is on, or being made.
 *
 * @param {CallState} state
 */
export function isCalling(state) {
  return state.phase !== 'idle' && state.phase !== 'ended';
}

/**
 * A fresh call; only the way of talking is kept.
 *
 * @param {CallState} state
 * @returns {CallState}
 */
function started(state) {
  if (isCalling(state)) return state;
  const { pushToTalk, muted } = state;
  return { ...INITIAL_STATE, pushToTalk, muted, phase: 'starting' };
}

/**
 * The line is down: nothing is being said, and what was being said will not go on.
 *
 * @param {CallState} state
 * @returns {CallState}
 */
function lineDown(state) {
  const lines = state.lines
    .filter((line) => line.text !== '')
    .map((line) => (line.final ? line : { ...line, final: true, interrupted: line.role === 'assistant' }));
  return { ...state, lines, activity: 'listening', speech: null, playing: false, talking: false, retryAtMs: null };
}

/**
 * @param {CallState} state
 * @param {Fault} fault
 * @returns {CallState}
 */
function faulted(state, fault) {
  if (!endsCall(fault) && fault.kind !== 'gone') return { ...state, fault };
  if (fault.kind === 'gone' && state.phase === 'reconnecting') return { ...state, fault };
  return { ...lineDown(state), phase: 'ended', microphone: 'off', fault };
}

/**
 * The server's complaint. Before the session stands it is about the call itself; a call that is to go on after a broken
 * line is tried again, full or not: its own old line may still be counted.
 *
 * @param {CallState} state
 * @param {Fault} fault
 * @returns {CallState}
 */
function refused(state, fault) {
  if (state.phase !== 'connecting') return faulted(state, fault);
  if (state.sessionId !== null && fault.kind !== 'keyRefused') return { ...state, fault };
  return faulted(state, fault.kind === 'answerFailed' ? { ...fault, kind: 'refused' } : fault);
}

/**
 * @param {CallState} state
 * @param {number} generation
 * @returns {CallState}
 */
function playedOut(state, generation) {
  const { speech } = state;
  if (!speech || speech.generation !== generation) return state;
  const lines = withKnownLine(state.lines, speech.itemId, (line) => ({ heardLength: line.text.length }));
  return { ...state, lines };
}

/**
 * @param {CallState} state
 * @param {WireMessage} message
 * @returns {CallState}
 */
function received(state, message) {
  const handler = HANDLERS[message.type];
  return handler ? handler(state, message) : state;
}

/** @type {Record<string, (state: CallState, message: WireMessage) => CallState>} */
const HANDLERS = {
  'session.created': (state, message) => ({
    ...state, phase: 'live', fault: state.fault?.kind === 'gone' ? null : state.fault, retryAtMs: null,
    sessionId: textAt(message, 'session', 'id') || state.sessionId,
  }),
  'duolog.session': (state, message) => ({ ...state, resumed: flagAt(message, 'resumed') }),
  'duolog.state': (state, message) => {
    const activity = textAt(message, 'state');
    return ACTIVITIES.includes(activity) ? { ...state, activity: /** @type {Activity} */ (activity) } : state;
  },
  'duolog.speech.started': (state, message) => ({
    ...state,
    speech: {
      generation: numberAt(message, 'generation') ?? 0,
      itemId: textAt(message, 'item_id'),
      rateHz: numberAt(message, 'sample_rate_hz') ?? 24_000,
    },
  }),
  'duolog.playout.heard': (state, message) => changed(state, message, (line) => ({
    heardLength: Math.max(line.heardLength, heardLength(line.text, textAt(message, 'heard_text'))),
  })),
  'conversation.item.input_audio_transcription.delta': (state, message) => grown(state, message, 'user', true),
  'conversation.item.input_audio_transcription.completed': (state, message) => transcribed(state, message),
  'conversation.item.input_audio_transcription.failed': (state, message) => ({
    ...state, lines: state.lines.filter((line) => line.id !== textAt(message, 'item_id') || line.text !== ''),
  }),
  'conversation.item.added': (state, message) => itemAdded(state, message),
  'conversation.item.deleted': (state, message) => ({
    ...state, lines: state.lines.filter((line) => line.id !== textAt(message, 'item_id')),
  }),
  'response.output_audio_transcript.delta': (state, message) => grown(state, message, 'assistant', true),
  'response.output_text.delta': (state, message) => grown(state, message, 'assistant', false),
  'response.output_audio_transcript.done': (state, message) => finished(state, message, 'transcript'),
  'response.output_text.done': (state, message) => finished(state, message, 'text'),
  'response.done': (state, message) => responseDone(state, message),
  'duolog.flush': (state) => flushed(state),
  error: (state, message) => {
    const fault = errorFault({
      code: textAt(message, 'error', 'code'),
      message: textAt(message, 'error', 'message'),
      retryAfterS: numberAt(message, 'error', 'retry_after_s'),
    });
    return fault ? refused(state, fault) : state;
  },
};

/**
 * @param {CallState} state
 * @param {WireMessage} message with `item_id`
 * @param {(line: Line) => Partial<Line>} change
 * @returns {CallState}
 */
function changed(state, message, change) {
  return { ...state, lines: withKnownLine(state.lines, textAt(message, 'item_id'), change) };
}

/**
 * @param {CallState} state
 * @param {WireMessage} message with `item_id` and `delta`
 * @param {Line['role']} role
 * @param {boolean} spoken
 * @returns {CallState}
 */
function grown(state, message, role, spoken) {
  const delta = textAt(message, 'delta');
  const lines = withLine(state.lines, textAt(message, 'item_id'), role, (line) => {
    const text = line.text + delta;
    return { text, spoken, heardLength: role === 'user' || !spoken ? text.length : line.heardLength };
  });
  return { ...state, lines };
}

/**
 * @param {CallState} state
 * @param {WireMessage} message
 * @returns {CallState}
 */
function transcribed(state, message) {
  const id = textAt(message, 'item_id');
  const text = textAt(message, 'transcript').trim();
  if (text === '') return { ...state, lines: state.lines.filter((line) => line.id !== id) };
  const lines = withLine(state.lines, id, 'user', () => ({ text, final: true, heardLength: text.length }));
  return { ...state, lines };
}

/**
 * Typed messages, and history that comes back after a resume, arrive as whole items; a spoken one has no text yet but
 * takes its place in the order.
 *
 * @param {CallState} state
 * @param {WireMessage} message
 * @returns {CallState}
 */
function itemAdded(state, message) {
  const role = textAt(message, 'item', 'role');
  const id = textAt(message, 'item', 'id');
  if ((role !== 'user' && role !== 'assistant') || id === '') return state;
  const item = /** @type {Record<string, unknown>} */ (message['item']);
  const text = itemText(item['content']);
  const lines = withLine(state.lines, id, role, (line) => {
    if (text === '' || line.text !== '') return {};
    return { text, final: true, spoken: false, heardLength: text.length };
  });
  return { ...state, lines };
}

/**
 * @param {CallState} state
 * @param {WireMessage} message
 * @param {'transcript' | 'text'} field
 * @returns {CallState}
 */
function finished(state, message, field) {
  return changed(state, message, (line) => {
    const text = textAt(message, field) || line.text;
    const heardAll = !line.spoken || (line.text !== '' && line.heardLength >= line.text.length);
    return { text, final: true, heardLength: heardAll ? text.length : Math.min(line.heardLength, text.length) };
  });
}

/**
 * @param {CallState} state
 * @param {WireMessage} message
 * @returns {CallState}
 */
function responseDone(state, message) {
  const status = textAt(message, 'response', 'status');
  if (status === 'failed') {
    const detail = textAt(message, 'response', 'status_details', 'error', 'message');
    return faulted(state, { kind: 'answerFailed', detail });
  }
  if (status !== 'cancelled') return state;
  const items = message['response'] && Reflect.get(/** @type {object} */ (message['response']), 'output');
  const ids = new Set((Array.isArray(items) ? items : []).map((item) => textAt(item, 'id')));
  const lines = state.lines.map((line) => (ids.has(line.id) ? { ...line, final: true, interrupted: true } : line));
  return { ...state, lines };
}

/**
 * What had not been heard when the flush came will not be.
 *
 * @param {CallState} state
 * @returns {CallState}
 */
function flushed(state) {
  const { speech } = state;
  if (!speech) return state;
  const lines = withKnownLine(state.lines, speech.itemId, (line) => ({
    interrupted: line.interrupted || line.heardLength < line.text.length,
  }));
  return { ...state, lines };
}
