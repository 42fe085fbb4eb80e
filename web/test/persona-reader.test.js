import assert from 'node:assert/strict';
import { mock, test } from 'node:test';

import { PersonaReader } from '../js/net/persona-reader.js';

const LIST = { personas: [{ id: 'ava', name: 'Ava', description: '', languages: ['en'] }], defaultId: 'ava', keyRefused: false };

/**
 * @param {import('node:test').TestContext} t
 * @param {boolean[]} outcomes whether each try brings the list; the last one goes on
 */
function reading(t, outcomes) {
  mock.timers.enable({ apis: ['setTimeout'] });
  t.after(() => mock.timers.reset());
  const seen = { tries: 0, answers: /** @type {boolean[]} */ ([]), isSeen: true };
  const reader = new PersonaReader({
    fetch: async () => {
      const outcome = outcomes[Math.min(seen.tries, outcomes.length - 1)];
      seen.tries += 1;
      return outcome ? LIST : null;
    },
    onAnswer: (answer) => seen.answers.push(answer !== null),
    isSeen: () => seen.isSeen,
  });
  const pass = async (/** @type {number} */ ms) => {
    mock.timers.tick(ms);
    for (let i = 0; i < 8; i += 1) await Promise.resolve();
  };
  return { reader, seen, pass };
}

test('tries come ever less often until the list is there, then no more', async (t) => {
  const { reader, seen, pass } = reading(t, [false, false, false, true]);
  reader.read();
  await pass(0);
  for (const ms of [500, 1000, 2000]) await pass(ms);
  assert.deepEqual(seen.answers, [false, false, false, true]);
  await pass(60_000);
  reader.hurry();
  await pass(0);
  assert.equal(seen.tries, 4);
});

test('a server that is away for long is asked some five times a minute', async (t) => {
  const { reader, seen, pass } = reading(t, [false]);
  reader.read();
  await pass(0);
  for (let s = 0; s < 600; s += 1) await pass(1000);
  assert.ok(seen.tries > 35 && seen.tries < 75, `${seen.tries} tries in 10 minutes`);
});

test('nobody looks: it rests, and tries at once when somebody does', async (t) => {
  const { reader, seen, pass } = reading(t, [false]);
  reader.read();
  await pass(0);
  seen.isSeen = false;
  await pass(600);
  await pass(60_000);
  assert.equal(seen.tries, 1);
  seen.isSeen = true;
  reader.hurry();
  await pass(0);
  assert.equal(seen.tries, 2);
});

test('with another key it is read anew, and the older try is void', async (t) => {
  const { reader, seen, pass } = reading(t, [false, true]);
  reader.read();
  reader.read();
  await pass(0);
  assert.deepEqual([seen.tries, seen.answers], [2, [true]]);
  await pass(60_000);
  assert.equal(seen.tries, 2);
});
