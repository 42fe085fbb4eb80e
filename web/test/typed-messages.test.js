import assert from 'node:assert/strict';
import { test } from 'node:test';

import { TypedMessages } from '../js/core/typed-messages.js';

function writing() {
  let number = 0;
  return new TypedMessages(() => `${(number += 1)}`);
}

/** @param {TypedMessages} typed */
const types = (typed) => typed.again().map((message) => message.type);

/** @param {unknown} askedBy */
const created = (askedBy, id = 'resp_1') => ({ type: 'response.created', response: { id, metadata: { asked_by: askedBy } } });

test('a message that was not acknowledged is sent again as it was', () => {
  const typed = writing();
  const sent = typed.write('Hello?');
  assert.deepEqual(typed.again(), sent);
  assert.deepEqual(typed.again(), sent);
  assert.equal(new Set(sent.map((message) => message['event_id'])).size, 2);
});

test('what was acknowledged is not sent again', () => {
  const typed = writing();
  const [create, ask] = typed.write('Hello?');
  typed.received({ type: 'conversation.item.added', item: { id: 'another' } });
  assert.deepEqual(types(typed), ['conversation.item.create', 'response.create']);
  const fresh = writing();
  const [first, second] = fresh.write('Hello?');
  assert.deepEqual([first, second], [create, ask]);
  fresh.received({ type: 'conversation.item.added', item: first?.['item'] });
  fresh.received(created('somebody else'));
  assert.equal(fresh.received(created(second?.['event_id'])).length, 0);
  assert.deepEqual(types(fresh), []);
});

test('an item that the resumed session announces counts as acknowledged', () => {
  const typed = writing();
  const [create] = typed.write('Hello?');
  typed.again();
  typed.received({ type: 'conversation.item.added', item: create?.['item'] });
  assert.deepEqual(types(typed), ['response.create']);
});

test('a refused message is given up', () => {
  const typed = writing();
  for (const { event_id } of typed.write('Hello?')) typed.received({ type: 'error', error: { event_id } });
  assert.deepEqual(types(typed), []);
});

test('an answer that the line cut off unheard is asked for anew, once', () => {
  const typed = writing();
  const [, ask] = typed.write('Hello?');
  typed.again();
  typed.received(created(ask?.['event_id']));
  const done = { type: 'response.done', response: { id: 'resp_1', status_details: { reason: 'client_cancelled' } } };
  const [anew] = typed.received(done);
  assert.equal(anew?.type, 'response.create');
  assert.notEqual(anew?.['event_id'], ask?.['event_id']);
  assert.deepEqual(typed.received(done), []);
});

test('an answer that is made after all, or that the user stopped, is not asked for anew', () => {
  const done = { type: 'response.done', response: { id: 'resp_1', status_details: { reason: 'client_cancelled' } } };
  const made = writing();
  const [, ask] = made.write('Hello?');
  made.again();
  made.received(created(ask?.['event_id']));
  made.received({ type: 'response.output_item.added', response_id: 'resp_1' });
  assert.deepEqual(made.received(done), []);

  const stopped = writing();
  const [, asked] = stopped.write('Hello?');
  stopped.again();
  stopped.received(created(asked?.['event_id']));
  stopped.interrupted();
  assert.deepEqual(stopped.received(done), []);
  assert.deepEqual(types(stopped), ['conversation.item.create']);
});
