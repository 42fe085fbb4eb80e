import assert from 'node:assert/strict';
import { test } from 'node:test';

import { heardLength } from '../js/core/captions.js';
import { INITIAL_STATE, isCalling, reduce } from '../js/core/call-state.js';
import { closeFault, errorFault, httpFault, microphoneFault, readiness } from '../js/core/faults.js';
import { parseMessage, personaList } from '../js/core/wire.js';

/** @typedef {import('../js/core/call-state.js').CallState} CallState */
/** @typedef {import('../js/core/call-state.js').Action} Action */

/** @param {...Action} actions */
const after = (...actions) => actions.reduce(reduce, INITIAL_STATE);

/**
 * @param {string} type
 * @param {Record<string, unknown>} [fields]
 * @returns {Action}
 */
const message = (type, fields = {}) => ({ kind: 'message', message: { type, ...fields } });

/** @type {Action[]} */
const LIVE = [{ kind: 'start' }, { kind: 'connect' }, message('session.created', { session: { id: 's1' } })];
const PARTIAL = 'conversation.item.input_audio_transcription.delta';
const FINAL = 'conversation.item.input_audio_transcription.completed';
const SPOKEN = 'response.output_audio_transcript.delta';

test('a call goes from idle to live and back', () => {
  const state = after(...LIVE);
  assert.deepEqual([state.phase, state.sessionId], ['live', 's1']);
  const ended = reduce(state, { kind: 'hangUp' });
  assert.deepEqual([ended.phase, isCalling(ended)], ['ended', false]);
  assert.equal(reduce(ended, message('session.created')).phase, 'ended');
});

test('partial words grow and the final transcript replaces them', () => {
  const partial = after(...LIVE, message(PARTIAL, { item_id: 'u', delta: 'which ' }), message(PARTIAL, { item_id: 'u', delta: 'bird' }));
  assert.deepEqual([partial.lines[0].text, partial.lines[0].final], ['which bird', false]);
  const final = reduce(partial, message(FINAL, { item_id: 'u', transcript: ' Which bird? ' }));
  assert.deepEqual([final.lines[0].text, final.lines[0].final], ['Which bird?', true]);
});

test('a turn without words leaves no line', () => {
  const state = after(...LIVE, message(PARTIAL, { item_id: 'u', delta: 'uh' }), message(FINAL, { item_id: 'u', transcript: '' }));
  assert.equal(state.lines.length, 0);
});

test('the heard mark moves forward only, and a played-out answer is heard in full', () => {
  const state = after(
    ...LIVE,
    message('duolog.speech.started', { generation: 1, item_id: 'a', sample_rate_hz: 24_000 }),
    message(SPOKEN, { item_id: 'a', delta: 'Hello there, friend.' }),
    message('duolog.playout.heard', { item_id: 'a', heard_text: 'hello there' }),
    message('duolog.playout.heard', { item_id: 'a', heard_text: 'Hello' }),
  );
  assert.equal(state.lines[0].text.slice(0, state.lines[0].heardLength), 'Hello there,');
  assert.equal(reduce(state, { kind: 'playedOut', generation: 0 }).lines[0].heardLength, 12);
  assert.equal(reduce(state, { kind: 'playedOut', generation: 1 }).lines[0].heardLength, 20);
});

test('what a flush cuts off is marked', () => {
  const state = after(
    ...LIVE,
    message('duolog.speech.started', { generation: 1, item_id: 'a' }),
    message(SPOKEN, { item_id: 'a', delta: 'A long answer.' }),
    message('duolog.flush', { generation: 2 }),
  );
  assert.equal(state.lines[0].interrupted, true);
});

test('typed messages and resumed history come as whole lines', () => {
  const content = [{ type: 'input_text', text: 'Hi' }];
  const state = after(...LIVE, message('conversation.item.added', { item: { id: 't', role: 'user', content } }));
  assert.deepEqual([state.lines[0].text, state.lines[0].final, state.lines[0].spoken], ['Hi', true, false]);
});

test('a broken line keeps the words and the session, and calls again', () => {
  const state = after(...LIVE, message(SPOKEN, { item_id: 'a', delta: 'Half' }), { kind: 'retryAt', atMs: 5 });
  assert.deepEqual([state.phase, state.sessionId, state.lines[0].interrupted], ['reconnecting', 's1', true]);
  const gone = reduce(state, { kind: 'fault', fault: { kind: 'gone' } });
  assert.equal(gone.phase, 'reconnecting');
  const back = [{ kind: 'connect' }, message('session.created', { session: { id: 's1' } })].reduce(
    (value, action) => reduce(value, /** @type {Action} */ (action)), gone);
  assert.deepEqual([back.phase, back.fault, back.retryAtMs], ['live', null, null]);
});

test('a full server and a refused key end the call, a failed answer does not', () => {
  const full = after(...LIVE, message('error', { error: { code: 'server_full', message: 'm', retry_after_s: 9 } }));
  assert.deepEqual([full.phase, full.fault?.kind, full.fault?.retryAfterS], ['ended', 'full', 9]);
  const failed = after(...LIVE, message('response.done', { response: { status: 'failed', output: [] } }));
  assert.deepEqual([failed.phase, failed.fault?.kind], ['live', 'answerFailed']);
  const late = after(...LIVE, message('error', { error: { code: 'response_cancel_not_active' } }));
  assert.equal(late.fault, null);
});

test('before the session stands an error refuses the call; a resumed one is tried again', () => {
  const error = message('error', { error: { code: 'server_error', message: 'm' } });
  const first = after({ kind: 'start' }, { kind: 'connect' }, error);
  assert.deepEqual([first.phase, first.fault?.kind, first.fault?.detail], ['ended', 'refused', 'm']);
  const full = message('error', { error: { code: 'session_limit_reached', message: 'm' } });
  const again = after(...LIVE, { kind: 'retryAt', atMs: 5 }, { kind: 'connect' }, full);
  assert.equal(again.phase, 'connecting');
});

test('unknown events and odd fields change nothing', () => {
  const state = after(...LIVE);
  assert.equal(reduce(state, message('duolog.future', { x: 1 })), state);
  assert.equal(reduce(state, message('duolog.state', { state: 'dancing' })), state);
  assert.equal(parseMessage('{'), null);
  assert.equal(parseMessage('[1]'), null);
  assert.deepEqual(personaList(null), { personas: [], defaultId: '' });
});

test('faults are told apart', () => {
  assert.equal(microphoneFault('NotAllowedError').kind, 'microphoneRefused');
  assert.equal(microphoneFault('NotFoundError').kind, 'microphoneMissing');
  assert.equal(microphoneFault('NotReadableError').kind, 'microphoneBusy');
  assert.equal(httpFault(401, '', '', null)?.kind, 'keyRefused');
  assert.equal(httpFault(503, '', '', 5)?.retryAfterS, 5);
  assert.equal(httpFault(503, '', 'not_ready', null)?.kind, 'warming');
  assert.equal(httpFault(426, '', '', null), null);
  assert.equal(httpFault(403, '', '', null)?.kind, 'refused');
  assert.equal(closeFault(1013, '')?.kind, 'full');
  assert.equal(closeFault(1008, '')?.kind, 'refused');
  assert.equal(closeFault(1006, ''), null);
  assert.equal(errorFault({ code: 'session_expired', message: '', retryAfterS: null })?.kind, 'expired');
  assert.equal(errorFault({ code: 'invalid_api_key', message: '', retryAfterS: null })?.kind, 'keyRefused');
  assert.deepEqual(readiness({ ready: false, parts: { llm: { ready: false, detail: 'loading' } } }).parts, [
    { name: 'llm', ready: false, detail: 'loading' },
  ]);
});

test('heard words are found despite other spaces and signs, in any script', () => {
  assert.equal(heardLength('Well — "hello" there.', 'well hello'), 14);
  assert.equal(heardLength('你好，世界。', '你好'), 3);
  assert.equal(heardLength('Done.', 'done'), 5);
  assert.equal(heardLength('Done.', ''), 0);
});
