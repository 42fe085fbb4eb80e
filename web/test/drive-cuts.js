/**
 * Cuts answers off at given places, in headless Chromium, and writes what was rendered and what the server says was heard.
 *
 *   node test/drive-cuts.js --url URL --text TEXT --at 0.4,0.95,1.7 --out result.json
 *
 * TEXT is typed and answered aloud; each time is seconds of the answer, by the audio clock. Every second cut is made by
 * the page's own button, the others by the server, which the page hears of by `duolog.flush`. `0.95+250` lowers the voice
 * at 0.95 s as `duolog.state: hearing` does, and cuts 250 ms later. A recorder behind the playback worklet keeps every
 * frame that reached the loudspeaker.
 */

import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';

import { launch } from './chromium.js';
import { waitFor } from './drive-call.js';

const PATIENCE_MS = 15_000;

/**
 * @typedef {object} Tap
 * @property {({ type: string, atMs: number } & Record<string, any>)[]} messages of the server
 * @property {({ kind: string, generation: number, playedSamples: number, atS: number, arrivedMs: number })[]} notices
 *   of the playback worklet
 * @property {{ frame: number, samples: Float32Array }[]} recorded
 * @property {WebSocket | null} socket
 * @property {BaseAudioContext | null} context
 */

/** Runs in the page before its own code: listens in on the socket and on the playback worklet. */
function tapIn() {
  /** @type {Tap} */
  const tap = { messages: [], notices: [], recorded: [], socket: null, context: null };
  Reflect.set(window, 'tap', tap);
  window.WebSocket = class extends WebSocket {
    /**
     * @param {string | URL} url
     * @param {string | string[]} [protocols]
     */
    constructor(url, protocols) {
      super(url, protocols);
      tap.socket = this;
      this.addEventListener('message', ({ data }) => {
        if (typeof data === 'string') tap.messages.push({ ...JSON.parse(data), atMs: performance.now() });
      });
    }
  };
  const recorder = `registerProcessor('recorder', class extends AudioWorkletProcessor {
    process([[samples]]) {
      if (samples) this.port.postMessage({ frame: currentFrame, samples: samples.slice() });
      return true;
    }
  });`;
  const Node = window.AudioWorkletNode;
  window.AudioWorkletNode = class extends Node {
    /**
     * @param {BaseAudioContext} context
     * @param {string} name
     * @param {AudioWorkletNodeOptions} [options]
     */
    constructor(context, name, options) {
      super(context, name, options);
      if (name !== 'duolog-playback') return;
      tap.context = context;
      this.port.addEventListener('message', ({ data }) => {
        if (data.kind !== 'level') tap.notices.push({ ...data, arrivedMs: performance.now() });
      });
      const module = URL.createObjectURL(new Blob([recorder], { type: 'text/javascript' }));
      void context.audioWorklet.addModule(module).then(() => {
        const node = new Node(context, 'recorder');
        node.port.onmessage = ({ data }) => tap.recorded.push(data);
        this.connect(node).connect(context.destination);
      });
    }
  };
}

/**
 * In the page: wait for the answer to come to its place, cut it, and gather what is known of it.
 *
 * @param {{ atS: number, lowerMs: number, byButton: boolean, patienceMs: number }} cut
 */
async function cutOff({ atS, lowerMs, byButton, patienceMs }) {
  /** @type {Tap} */
  const tap = Reflect.get(window, 'tap');
  const until = async (/** @type {() => any} */ found) => {
    const giveUpAt = performance.now() + patienceMs;
    for (let it = found(); ; it = found()) {
      if (it) return it;
      if (performance.now() > giveUpAt) throw new Error(`nothing came: ${found}`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  const last = (/** @type {string} */ type) => tap.messages.filter((message) => message.type === type).at(-1);
  const socket = /** @type {WebSocket} */ (tap.socket);
  const context = /** @type {BaseAudioContext} */ (tap.context);
  const started = await until(() => tap.notices.find(({ kind, generation }) => {
    return kind === 'started' && generation === last('duolog.speech.started')?.['generation'];
  }));
  const { generation } = started;
  const itemId = last('duolog.speech.started')?.['item_id'];
  await until(() => context.currentTime >= started.atS + atS);
  if (lowerMs > 0) {
    const data = JSON.stringify({ type: 'duolog.state', state: 'hearing' });
    socket.dispatchEvent(new MessageEvent('message', { data }));
    await until(() => context.currentTime >= started.atS + atS + lowerMs / 1000);
  }
  const decidedMs = performance.now();
  if (byButton) document.getElementById('interrupt')?.click();
  else socket.send(JSON.stringify({ type: 'response.cancel' }));
  const flushed = await until(() => tap.notices.find((one) => one.kind === 'flushed' && one.generation === generation));
  await until(() => context.currentTime >= flushed.atS + 0.15);
  socket.send(JSON.stringify({ type: 'conversation.item.retrieve', item_id: itemId }));
  const retrieved = await until(() => {
    return tap.messages.find(({ type, item }) => type === 'conversation.item.retrieved' && item.id === itemId);
  });
  const told = tap.messages.filter(({ type, item_id }) => type === 'duolog.playout.heard' && item_id === itemId).at(-1);
  const rateHz = context.sampleRate;
  const first = Math.round(started.atS * rateHz);
  const frames = Math.round((flushed.atS + 0.1) * rateHz) - first;
  const pcm = new Float32Array(frames);
  let recordedFrames = 0;
  for (const { frame, samples } of tap.recorded) {
    samples.forEach((sample, i) => {
      const at = frame + i - first;
      if (at < 0 || at >= frames) return;
      pcm[at] = sample;
      recordedFrames += 1;
    });
  }
  tap.recorded.length = 0;
  const levels = Array.from({ length: Math.floor((frames * 1000) / rateHz) }, (_, ms) => {
    const part = pcm.subarray(Math.round((ms * rateHz) / 1000), Math.round(((ms + 1) * rateHz) / 1000));
    return Math.sqrt(part.reduce((sum, sample) => sum + sample * sample, 0) / part.length);
  });
  return {
    atS, lowerMs, byButton, generation, itemId, rateHz, recordedFrames, frames,
    playedSamples: flushed.playedSamples,
    renderedS: flushed.atS - started.atS,
    underruns: tap.notices.filter((one) => one.kind === 'underrun' && one.generation === generation).length,
    history: String(retrieved['item'].content.map((/** @type {any} */ part) => part.transcript ?? part.text).join('')),
    told: String(told?.['heard_text'] ?? ''),
    isApproximate: told?.['approximate'] === true,
    decidedToSilentMs: flushed.arrivedMs - decidedMs,
    levels: levels.map((level) => Math.round(level * 1e4) / 1e4),
  };
}

async function main() {
  const { values } = parseArgs({
    options: { url: { type: 'string' }, text: { type: 'string' }, at: { type: 'string' }, out: { type: 'string' } },
  });
  const { url, text, at, out } = values;
  if (!url || !text || !at || !out) {
    process.stderr.write('usage: drive-cuts.js --url URL --text TEXT --at SECONDS[+MS],… --out result.json\n');
    return 2;
  }
  const browser = await launch({ wav: null });
  try {
    // The recorder is a module of this script's own, which the page's policy would not let in.
    const page = await (await browser.newContext({ bypassCSP: true, locale: 'en-US' })).newPage();
    await page.addInitScript(tapIn);
    await page.goto(url);
    await page.click('#call-button');
    await page.getByRole('button', { name: 'Type instead' }).click({ timeout: PATIENCE_MS });
    await waitFor(page, ({ phase, playing }) => phase === 'live' && playing, PATIENCE_MS);
    await page.evaluate(() => document.getElementById('interrupt')?.click());
    await waitFor(page, ({ playing }) => !playing, PATIENCE_MS);
    const cuts = [];
    for (const [number, place] of at.split(',').entries()) {
      await page.evaluate(() => Reflect.get(window, 'tap').notices.splice(0));
      await page.fill('#message', text);
      await page.press('#message', 'Enter');
      const [atS, lowerMs = 0] = place.split('+').map(Number);
      const cut = { atS, lowerMs, byButton: number % 2 === 0, patienceMs: PATIENCE_MS };
      cuts.push(await page.evaluate(cutOff, cut));
    }
    await writeFile(out, JSON.stringify({ cuts }, null, 2));
    return 0;
  } finally {
    await browser.close();
  }
}

if (process.argv[1] === new URL(import.meta.url).pathname) process.exitCode = await main();
