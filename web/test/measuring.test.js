import assert from 'node:assert/strict';
import { test } from 'node:test';

import { MAX_ATTEMPTS, reconnectDelayMs } from '../js/core/backoff.js';
import { CaptureMap } from '../js/core/capture-map.js';
import { ClockFit } from '../js/core/clock-fit.js';
import { meterFromRms, mixToMono, toPcm16 } from '../js/core/pcm.js';
import { percentile, summarize } from '../js/core/percentiles.js';
import { SampleFifo } from '../js/core/sample-fifo.js';
import { TurnLog } from '../js/core/turn-log.js';
import { scaleFor, stageBars } from '../js/core/waterfall.js';
import { turnTimings } from '../js/core/wire.js';

const TIMINGS = turnTimings({
  type: 'duolog.turn.timings', generation: 2, item_id: 'i', speech_end_sample: 479, endpoint_ms: 400, transcript_ms: 500,
  admitted_ms: 505, first_token_ms: 540, first_phrase_ms: 660, first_audio_ms: 740, first_audio_sent_ms: 742,
});

test('a sample is traced to the moment of its capture, across gaps', () => {
  const map = new CaptureMap(16_000);
  map.add(320, 1020);
  map.add(320, 5020);
  assert.equal(map.capturedAtMs(319), 1020);
  assert.equal(map.capturedAtMs(303), 1019);
  assert.equal(map.capturedAtMs(639), 5020);
  assert.equal(map.capturedAtMs(640), null);
  map.reset();
  assert.equal(map.capturedAtMs(0), null);
});

test('the audio clock is fitted by its promptest reading', () => {
  const fit = new ClockFit();
  assert.equal(fit.pageMs(1), null);
  fit.observe(1, 2015);
  fit.observe(2, 3003);
  fit.observe(3, 4009);
  assert.equal(fit.pageMs(10), 11_003);
});

test('percentiles lie between ranks', () => {
  assert.equal(percentile([], 0.5), null);
  assert.equal(percentile([30, 10, 20, 40], 0.5), 25);
  assert.deepEqual(summarize([null, 7, undefined]), { count: 1, p50: 7, p90: 7, p99: 7 });
});

test('waits double, are never all alike, obey the server and end', () => {
  assert.equal(reconnectDelayMs(1, 0), 500);
  assert.equal(reconnectDelayMs(3, 1), 1400);
  assert.equal(reconnectDelayMs(9, 0), 15_000);
  assert.equal(reconnectDelayMs(1, 0, 20), 20_000);
  assert.equal(reconnectDelayMs(MAX_ATTEMPTS + 1, 0), null);
});

test('a turn after the endpoint is a staircase from speech end to sound', () => {
  const bars = stageBars({
    number: 1, generation: 2, server: TIMINGS, receivedMs: 765, renderedMs: 771, outputLatencyMs: 10,
  });
  assert.deepEqual(bars.map((bar) => bar.stage), [
    'endpoint', 'transcript', 'queue', 'firstToken', 'firstPhrase', 'synthesis', 'release', 'network', 'audible',
  ]);
  assert.equal(bars[0].fromMs, 0);
  for (let i = 1; i < bars.length; i += 1) assert.equal(bars[i].fromMs, bars[i - 1].toMs);
  assert.equal(bars.at(-1)?.toMs, 771);
});

test('with speculation the work overlaps the wait and the finished answer is held', () => {
  const server = { ...TIMINGS, endpointMs: 700, firstAudioSentMs: 702, transcriptMs: 160, admittedMs: 161,
    firstTokenMs: 200, firstPhraseMs: 320, firstAudioMs: 390 };
  const bars = stageBars({ number: 1, generation: 2, server, receivedMs: null, renderedMs: null, outputLatencyMs: null });
  assert.deepEqual(bars.find((bar) => bar.stage === 'transcript'), { stage: 'transcript', fromMs: 0, toMs: 160 });
  assert.deepEqual(bars.at(-1), { stage: 'release', fromMs: 390, toMs: 702 });
});

test('scales have round steps', () => {
  assert.deepEqual(scaleFor(812), { stepMs: 200, endMs: 1000 });
  assert.deepEqual(scaleFor(95), { stepMs: 20, endMs: 100 });
  assert.equal(scaleFor(0).endMs > 0, true);
});

test('the log joins what the server and the page measured, in any order', () => {
  const log = new TurnLog();
  log.frameReceived(1, 10);
  log.rendered(1, 20, 5);
  log.frameReceived(2, 1765);
  log.frameReceived(2, 1900);
  log.timings(TIMINGS, 1000);
  log.rendered(2, 1771, 12);
  const [turn] = log.turns;
  assert.deepEqual([log.turns.length, turn.number, turn.receivedMs, turn.renderedMs], [1, 1, 765, 771]);
  assert.equal(log.summary.voiceToVoice.p50, 771);
  assert.equal(log.summary.stages['endpoint'].p50, 400);
});

test('turns outlive a reconnection, and generations that count anew are new turns', () => {
  const log = new TurnLog();
  log.timings(TIMINGS, 1000);
  log.reconnected();
  log.timings(TIMINGS, 9000);
  assert.deepEqual(log.turns.map((turn) => turn.number), [1, 2]);
});

test('an interruption lasts from the flush to silence', () => {
  const log = new TurnLog();
  log.silenced(50);
  log.flushDecided(3, 100);
  log.silenced(118);
  log.silenced(400);
  assert.deepEqual(log.interruptions, [{ generation: 3, decisionToSilenceMs: 18 }]);
});

test('a ring of samples grows and keeps their order', () => {
  const fifo = new SampleFifo();
  const out = new Float32Array(30_000);
  fifo.write(Float32Array.from({ length: 10_000 }, (_, i) => i));
  assert.equal(fifo.readInto(out, 0, 9_000), 9_000);
  fifo.write(Float32Array.from({ length: 29_000 }, (_, i) => 10_000 + i));
  assert.equal(fifo.readInto(out, 0, 99_999), 30_000);
  assert.ok(out.every((sample, i) => sample === 9_000 + i));
});

test('samples clip, meters end at both ends, and stereo is mixed', () => {
  assert.deepEqual([...toPcm16(Float32Array.of(2, -2, 0))], [32_767, -32_767, 0]);
  assert.deepEqual([meterFromRms(0), meterFromRms(1e-9), meterFromRms(1)], [0, 0, 1]);
  assert.deepEqual([...mixToMono([Float32Array.of(1, 0), Float32Array.of(0, 0.5)])], [0.5, 0.25]);
});
