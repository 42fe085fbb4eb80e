import assert from 'node:assert/strict';
import { test } from 'node:test';

import { rms } from '../js/core/pcm.js';
import { StreamResampler } from '../js/core/resampler.js';

/**
 * @param {number} rateHz
 * @param {number} frequencyHz
 * @param {number} seconds
 */
function sine(rateHz, frequencyHz, seconds) {
  return Float32Array.from({ length: Math.round(rateHz * seconds) }, (_, i) => Math.sin((2 * Math.PI * frequencyHz * i) / rateHz));
}

/**
 * @param {StreamResampler} resampler
 * @param {Float32Array} input
 * @param {number} block
 */
function inBlocks(resampler, input, block) {
  /** @type {number[]} */
  const output = [];
  for (let i = 0; i < input.length; i += block) output.push(...resampler.process(input.subarray(i, i + block)));
  output.push(...resampler.drain());
  return Float32Array.from(output);
}

for (const rate of [8_000, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000]) {
  test(`${rate} Hz to 16 kHz keeps a tone of 1 kHz in place and level`, () => {
    const output = inBlocks(new StreamResampler(rate, 16_000), sine(rate, 1000, 0.25), 128);
    const expected = sine(16_000, 1000, 0.25);
    assert.equal(output.length, Math.ceil((Math.round(rate * 0.25) * 16_000) / rate));
    for (let i = 400; i < 3600; i += 1) assert.ok(Math.abs(output[i] - expected[i]) < 2e-3, `sample ${i}`);
  });
}

for (const rate of [24_000, 44_100, 48_000]) {
  test(`${rate} Hz to 16 kHz lets nothing alias`, () => {
    const output = inBlocks(new StreamResampler(rate, 16_000), sine(rate, 10_000, 0.25), 128);
    assert.ok(rms(output.subarray(400, -400)) < 1e-3);
  });
}

test('how a stream is cut into blocks changes nothing', () => {
  const input = sine(44_100, 700, 0.2);
  const whole = inBlocks(new StreamResampler(44_100, 16_000), input, input.length);
  for (const block of [1, 7, 128, 441]) {
    assert.deepEqual(inBlocks(new StreamResampler(44_100, 16_000), input, block), whole);
  }
});

test('up to the context rate and its length is exact', () => {
  const output = inBlocks(new StreamResampler(24_000, 44_100), sine(24_000, 440, 0.1), 480);
  assert.equal(output.length, Math.ceil((2400 * 44_100) / 24_000));
});

test('equal rates pass samples through unchanged and at once', () => {
  const resampler = new StreamResampler(16_000, 16_000);
  const input = sine(16_000, 440, 0.01);
  assert.deepEqual(resampler.process(input), input);
});
