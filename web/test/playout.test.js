import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Playout } from '../js/core/playout.js';

/** @typedef {import('../js/core/playout.js').PlayoutNotice} PlayoutNotice */

const BLOCK = 128;

/** @param {number} count */
const tone = (count) => new Float32Array(count).fill(0.5);

/**
 * @param {Playout} playout
 * @param {number} blocks
 */
function render(playout, blocks) {
  /** @type {number[]} */
  const samples = [];
  /** @type {PlayoutNotice[]} */
  const notices = [];
  for (let i = 0; i < blocks; i += 1) {
    const block = new Float32Array(BLOCK);
    notices.push(...playout.render(block));
    samples.push(...block);
  }
  return { samples, notices };
}

/**
 * @param {number} contextRateHz
 * @param {number} seconds of speech at 24 kHz
 */
function speaking(contextRateHz, seconds) {
  const playout = new Playout(contextRateHz);
  playout.begin(1, 24_000);
  playout.write(1, 0, tone(24_000 * seconds));
  return playout;
}

for (const contextRateHz of [24_000, 44_100, 48_000]) {
  test(`at ${contextRateHz} Hz everything is played once and counted exactly`, () => {
    const playout = speaking(contextRateHz, 0.5);
    playout.end(1);
    const { samples, notices } = render(playout, Math.ceil(contextRateHz / BLOCK));
    assert.deepEqual(notices.map((notice) => notice.kind), ['started', 'ended']);
    assert.equal(notices[1].playedSamples, 12_000);
    assert.equal(samples.filter((sample) => Math.abs(sample) > 0.05).length, Math.ceil(contextRateHz / 2));
  });
}

test('the count never runs ahead of what was rendered', () => {
  const playout = speaking(48_000, 0.5);
  render(playout, 10);
  assert.equal(playout.current?.playedSamples, (10 * BLOCK) / 2);
});

test('a flush fades within 10 ms, falls silent and says where', () => {
  const playout = speaking(48_000, 1);
  render(playout, 20);
  playout.flush(2);
  const { samples, notices } = render(playout, 10);
  assert.deepEqual(notices.map(({ kind, generation }) => [kind, generation]), [['flushed', 1]]);
  assert.equal(notices[0].playedSamples, (20 * BLOCK + 480) / 2);
  assert.ok(samples.slice(480).every((sample) => sample === 0));
  for (let i = 1; i < 480; i += 1) assert.ok(samples[i] <= samples[i - 1], 'the fade only falls');
});

test('frames below the flush are dropped, later generations play', () => {
  const playout = speaking(48_000, 1);
  render(playout, 5);
  playout.flush(2);
  render(playout, 5);
  playout.write(1, 24_000, tone(2400));
  playout.begin(1, 24_000);
  assert.equal(playout.staleFrames, 1);
  assert.equal(playout.current, null);
  playout.begin(2, 24_000);
  playout.write(2, 0, tone(4800));
  assert.equal(render(playout, 1).notices[0].generation, 2);
});

test('a flushed generation that never sounded is reported with nothing played', () => {
  const playout = new Playout(48_000);
  playout.begin(1, 24_000);
  playout.flush(2);
  const { notices } = render(playout, 1);
  assert.deepEqual(notices.map(({ kind, playedSamples }) => [kind, playedSamples]), [['flushed', 0]]);
});

test('a generation waits for the one before it', () => {
  const playout = speaking(48_000, 0.1);
  playout.end(1);
  playout.begin(2, 24_000);
  playout.write(2, 0, tone(2400));
  playout.end(2);
  const { notices } = render(playout, 100);
  assert.deepEqual(notices.map(({ kind, generation }) => `${kind} ${generation}`), ['started 1', 'ended 1', 'started 2', 'ended 2']);
});

test('running dry is counted, clicks not, and goes on where it stopped', () => {
  const playout = speaking(48_000, 0.1);
  const first = render(playout, 60);
  assert.equal(playout.underruns, 1);
  for (let i = 1; i < first.samples.length; i += 1) {
    assert.ok(Math.abs(first.samples[i] - first.samples[i - 1]) < 0.3 || i < 200, 'no jump');
  }
  playout.write(1, 2400, tone(4800));
  playout.end(1);
  const { notices } = render(playout, 200);
  assert.deepEqual(notices.map(({ kind, playedSamples }) => [kind, playedSamples]), [['ended', 7200]]);
});

test('a little speech that stays alone is played after a short wait', () => {
  const playout = new Playout(48_000);
  playout.begin(1, 24_000);
  playout.write(1, 0, tone(480));
  assert.equal(render(playout, 10).notices.length, 0);
  assert.equal(render(playout, 60).notices[0].kind, 'started');
});

test('lost samples become silence and repeated ones are dropped', () => {
  const playout = new Playout(24_000);
  playout.begin(1, 24_000);
  playout.write(1, 0, tone(2400));
  playout.write(1, 1200, tone(2400));
  playout.write(1, 4800, tone(1200));
  playout.end(1);
  const { samples, notices } = render(playout, 100);
  assert.equal(notices.at(-1)?.playedSamples, 6000);
  assert.equal(samples.filter((sample) => sample > 0.01).length, 4800);
});

test('a reset stops all and lets generations count anew', () => {
  const playout = speaking(48_000, 1);
  render(playout, 5);
  playout.reset();
  render(playout, 10);
  playout.begin(1, 24_000);
  playout.write(1, 0, tone(4800));
  assert.equal(render(playout, 1).notices[0].kind, 'started');
});

test('ducking lowers the voice and lets it come back, without losing a sample', () => {
  const playout = speaking(48_000, 1);
  render(playout, 20);
  playout.duck(true);
  const low = render(playout, 30).samples.at(-1) ?? 1;
  playout.duck(false);
  const high = render(playout, 30).samples.at(-1) ?? 0;
  assert.ok(low < 0.1 && high > 0.45);
  assert.equal(playout.current?.playedSamples, (80 * BLOCK) / 2);
});

/**
 * Speech whose samples say which they are.
 *
 * @param {number} count
 */
const ramp = (count) => Float32Array.from({ length: count }, (_, i) => (i + 1) / count);

/**
 * Speech that was lowered until it is held; returns the position.
 *
 * @param {Playout} playout
 */
function hold(playout) {
  playout.duck(true);
  render(playout, Math.ceil((0.5 * 24_000) / BLOCK));
  assert.equal(playout.held, true);
  return playout.current?.playedSamples ?? 0;
}

function ramping() {
  const playout = new Playout(24_000);
  playout.begin(1, 24_000);
  playout.write(1, 0, ramp(48_000));
  playout.end(1);
  render(playout, 40);
  return playout;
}

test('lowered for long, speech is held in place, and goes on at the exact sample', () => {
  const playout = ramping();
  const position = hold(playout);
  // Lowered speech is played speech: 400 ms of it, and the fade into the hold, to the end of its block.
  assert.ok(position >= 40 * BLOCK + 9_600 && position <= 40 * BLOCK + 9_600 + 960 + BLOCK);
  const still = render(playout, 300);
  assert.ok(still.samples.every((sample) => sample === 0));
  assert.deepEqual(still.notices, []);
  assert.equal(playout.current?.playedSamples, position);
  playout.duck(false);
  const { samples } = render(playout, 10);
  assert.ok(samples[0] > 0 && samples[0] < 0.01, 'a fade in, no click');
  for (let i = 960; i < samples.length; i += 1) {
    assert.ok(Math.abs(samples[i] - (position + i + 1) / 48_000) < 1e-6, `sample ${position + i}`);
  }
  assert.equal(playout.current?.playedSamples, position + 10 * BLOCK);
  const { notices } = render(playout, 400);
  assert.deepEqual(notices.map(({ kind, playedSamples }) => [kind, playedSamples]), [['ended', 48_000]]);
});

test('a duck that is over soon never holds', () => {
  const playout = ramping();
  for (let i = 0; i < 4; i += 1) {
    playout.duck(true);
    render(playout, 60);
    assert.equal(playout.held, false);
    playout.duck(false);
    render(playout, 8);
  }
  assert.equal(playout.current?.playedSamples, (40 + 4 * 68) * BLOCK);
});

test('saying again that it is ducked does not put the hold off', () => {
  const playout = ramping();
  for (let i = 0; i < 10; i += 1) {
    playout.duck(true);
    render(playout, 10);
  }
  assert.equal(playout.held, true);
});

test('a flush of held speech plays nothing more and tells the exact place', () => {
  const playout = ramping();
  const position = hold(playout);
  playout.flush(2);
  const { samples, notices } = render(playout, 5);
  assert.deepEqual(notices.map(({ kind, generation, playedSamples }) => [kind, generation, playedSamples]), [['flushed', 1, position]]);
  assert.ok(samples.every((sample) => sample === 0));
  playout.begin(2, 24_000);
  playout.write(2, 0, tone(4800));
  playout.duck(false);
  const next = render(playout, 20);
  assert.equal(next.notices[0].kind, 'started');
  assert.equal(playout.current?.playedSamples, 20 * BLOCK);
  assert.ok(next.samples.at(-1) === 0.5);
});

test('a flush of lowered speech fades from where it is', () => {
  const playout = ramping();
  playout.duck(true);
  render(playout, 20);
  playout.flush(2);
  const { samples, notices } = render(playout, 4);
  assert.equal(notices[0].playedSamples, 60 * BLOCK + 240);
  assert.ok(samples[0] > 0 && samples[0] < 0.2 && samples.slice(240).every((sample) => sample === 0));
});

test('a reset ends a hold', () => {
  const playout = ramping();
  hold(playout);
  playout.reset();
  render(playout, 1);
  playout.begin(1, 24_000);
  playout.write(1, 0, tone(4800));
  assert.equal(render(playout, 1).notices[0].kind, 'started');
});
