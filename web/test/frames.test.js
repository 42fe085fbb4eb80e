import assert from 'node:assert/strict';
import { test } from 'node:test';

import { decodeSpeechFrame, encodeMicrophoneFrame } from '../js/core/frames.js';

test('a microphone frame is kind 1, flags 0, the sequence and the samples, little-endian', () => {
  const bytes = new Uint8Array(encodeMicrophoneFrame(0x1234, Int16Array.of(1, -2)));
  assert.deepEqual([...bytes], [1, 0, 0x34, 0x12, 1, 0, 0xfe, 0xff]);
});

test('the sequence wraps at 65,536', () => {
  assert.equal(new DataView(encodeMicrophoneFrame(65_537, new Int16Array(0))).getUint16(2, true), 1);
});

test('a speech frame is read back', () => {
  const bytes = new ArrayBuffer(16);
  const view = new DataView(bytes);
  view.setUint8(0, 2);
  view.setUint32(4, 7, true);
  view.setUint32(8, 4800, true);
  view.setInt16(12, -300, true);
  const frame = decodeSpeechFrame(bytes);
  assert.deepEqual([frame?.generation, frame?.startSample, [...(frame?.samples ?? [])]], [7, 4800, [-300, 0]]);
});

test('frames that are short, odd or of another kind are none', () => {
  assert.equal(decodeSpeechFrame(new ArrayBuffer(11)), null);
  assert.equal(decodeSpeechFrame(new ArrayBuffer(13)), null);
  assert.equal(decodeSpeechFrame(new ArrayBuffer(12)), null);
});
