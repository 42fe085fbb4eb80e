/** The page in real headless Chromium, against the fake server, with a generated WAV as the microphone. */

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { launch, skipReason } from './chromium.js';
import { seen, snapshot, waitFor } from './drive-call.js';
import { ANSWER, FakeServer, QUESTION } from './fake-server.js';
import { writeToneWav } from './tone-wav.js';

/** @typedef {import('playwright-core').Browser} Browser */
/** @typedef {import('playwright-core').Page} Page */

const OUTPUT_RATE_HZ = 24_000;
const PATIENCE_MS = 15_000;

/**
 * The page of a server, opened.
 *
 * @param {Browser} browser
 * @param {import('./fake-server.js').FakeOptions} options
 * @param {(page: Page, server: FakeServer) => Promise<void>} story
 * @param {{ hash?: string, context?: import('playwright-core').BrowserContextOptions }} [with_]
 */
async function onPage(browser, options, story, { hash = '', context = {} } = {}) {
  const server = new FakeServer(options);
  const url = await server.start();
  const opened = await browser.newContext({ locale: 'en-US', ...context });
  const page = await opened.newPage();
  /** @type {string[]} */
  const errors = [];
  page.on('pageerror', (error) => errors.push(error.message));
  page.on('console', (line) => line.text().includes('Content Security Policy') && errors.push(line.text()));
  try {
    await page.goto(url + hash);
    await page.waitForSelector('.persona');
    await story(page, server);
    assert.deepEqual(errors, []);
  } finally {
    await opened.close();
    await server.stop();
  }
}

/** @param {Page} page */
const start = async (page) => {
  await page.click('#call-button');
  return waitFor(page, (record) => record.phase === 'live', PATIENCE_MS);
};

/**
 * @param {Page} page
 * @param {string} text
 */
const noticeSays = (page, text) => page.locator('#notice', { hasText: text }).waitFor({ timeout: PATIENCE_MS });

describe('the page with a microphone', { skip: skipReason(), concurrency: false }, () => {
  /** @type {Browser} */ let browser;
  /** @type {string} */ let folder;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'duolog-page-'));
    const wav = join(folder, 'speech.wav');
    await writeToneWav(wav, { leadS: 1, speechS: 1.4, quietS: 8 });
    browser = await launch({ wav });
  });

  after(async () => {
    await browser?.close();
    await rm(folder, { recursive: true, force: true });
  });

  test('a spoken turn: captions, answer, sound and a waterfall', async () => {
    await onPage(browser, { answerSeconds: 2 }, async (page, server) => {
      await start(page);
      const partial = await waitFor(page, (record) => record.lines.some((line) => line.role === 'user' && !line.final && line.text !== ''), PATIENCE_MS);
      assert.ok(partial.lines.some((line) => line.role === 'user' && !line.final), 'words appear while speaking');
      const wanted = 2 * OUTPUT_RATE_HZ;
      const record = await waitFor(page, ({ counts }) => counts.playout.played[2] === wanted, PATIENCE_MS);
      assert.deepEqual(seen(record), { captions: true, answer: true, audio: true, waterfall: true });
      assert.ok(record.lines.some((line) => line.text === QUESTION && line.final));
      assert.equal(await page.locator('.line[data-role="assistant"] .words').last().textContent(), ANSWER);
      const [call] = server.calls;
      const reports = call.reports.filter((report) => report['generation'] === 2);
      assert.equal(reports.at(-1)?.['played_samples'], wanted);
      assert.deepEqual(reports.map((report) => report['ended']), [...Array(reports.length - 1).fill(false), true]);
      assert.ok(reports.length >= 2 * 7, `a report about each 100 ms, not ${reports.length} in 2 s`);
      await page.click('#overlay-toggle');
      await page.locator('.waterfall .bar-audible').first().waitFor();
      const notes = (await page.locator('figure.turn figcaption').allTextContents()).join(' ');
      assert.match(notes, /speculation used|2 speculations wasted before/);
    });
  });

  test('the microphone is sent as 16 kHz, 20 ms a frame, in order and not silent', async () => {
    await onPage(browser, {}, async (page, server) => {
      await start(page);
      await waitFor(page, ({ counts }) => counts.microphone.sentFrames >= 150, PATIENCE_MS);
      const { frames, peak } = server.calls[0];
      assert.ok(frames.every((frame) => frame.samples === 320));
      assert.deepEqual(frames.map((frame) => frame.sequence), frames.map((_, index) => index));
      const seconds = (frames[frames.length - 1].atMs - frames[0].atMs) / 1000;
      const rate = ((frames.length - 1) * 320) / seconds;
      assert.ok(Math.abs(rate - 16_000) < 1600, `${Math.round(rate)} samples a second`);
      assert.ok(peak > 1000, 'the voice comes through');
    });
  });

  test('a flush falls silent and is answered with what was played', async () => {
    await onPage(browser, { answerSeconds: 6 }, async (page, server) => {
      await start(page);
      await waitFor(page, (record) => record.playing && (record.counts.playout.played[2] ?? 0) > 5000, PATIENCE_MS);
      const [call] = server.calls;
      call.flush();
      const record = await waitFor(page, ({ interruptions }) => interruptions.length > 0, 5000);
      assert.equal(record.playing, false);
      // A defect here is seconds of speech; the goal of 100 ms is measured by the benchmark.
      assert.ok(record.interruptions[0].decisionToSilenceMs < 1000);
      const ended = call.reports.filter((report) => report['generation'] === 2 && report['ended'] === true);
      assert.equal(ended.length, 1);
      assert.equal(ended[0]['played_samples'], record.counts.playout.played[2]);
      const { energy } = record.counts.playout;
      await page.waitForTimeout(300);
      assert.equal((await snapshot(page)).counts.playout.energy - energy < 5, true, 'nothing sounds on');
      await page.locator('.line .tag').first().waitFor();
    });
  });

  test('after a dropped line the session goes on, with its words and without a second greeting', async () => {
    await onPage(browser, {}, async (page, server) => {
      await start(page);
      await waitFor(page, (record) => record.lines.length > 0, PATIENCE_MS);
      server.calls[0].drop();
      await noticeSays(page, 'The server does not answer');
      const record = await waitFor(page, ({ phase }) => phase === 'live' && server.calls.length === 2, PATIENCE_MS);
      const query = server.calls[1].url.searchParams;
      assert.deepEqual([query.get('session'), query.get('greeting'), query.get('duolog')], ['sess_1', null, '1']);
      assert.deepEqual([record.resumed, record.lines[0].role], [true, 'assistant']);
      assert.equal(await page.locator('#notice').isVisible(), false);
      await waitFor(page, () => server.calls[1].frames.length > 10, PATIENCE_MS);
      assert.equal(server.calls[1].frames[0].sequence, 0);
    });
  });

  test('what is typed while the line is down arrives when it is back, once', async () => {
    await onPage(browser, {}, async (page, server) => {
      await start(page);
      server.calls[0].drop();
      await waitFor(page, ({ phase }) => phase === 'reconnecting', PATIENCE_MS);
      await page.fill('#message', 'Still there?');
      await page.press('#message', 'Enter');
      const typed = () => server.calls[1]?.messages.filter(({ type }) => type === 'conversation.item.create') ?? [];
      await waitFor(page, ({ lines }) => lines.some((line) => line.text === 'Still there?'), PATIENCE_MS);
      assert.equal(typed().length, 1);
      assert.equal(server.calls[1].messages.filter(({ type }) => type === 'response.create').length, 1);
      assert.match(String(typed()[0]['event_id']), /./);
    });
  });

  test('mute sends silence, and says so', async () => {
    await onPage(browser, {}, async (page, server) => {
      await start(page);
      await page.click('#mute');
      const [call] = server.calls;
      await waitFor(page, () => call.messages.some((message) => message.type === 'duolog.mute'), PATIENCE_MS);
      await page.waitForTimeout(200);
      call.peak = 0;
      await page.waitForTimeout(3500);
      assert.equal(call.peak, 0);
      assert.equal(await page.locator('#mute').textContent(), 'Unmute');
    });
  });

  test('push-to-talk: frames flow while the space bar is held, then the turn is committed', async () => {
    await onPage(browser, {}, async (page, server) => {
      await start(page);
      await page.click('#settings summary');
      await page.check('#push-to-talk');
      await page.click('#settings summary');
      await page.locator('#state-line').click();
      const [call] = server.calls;
      await page.waitForTimeout(300);
      const before = call.frames.length;
      await page.waitForTimeout(400);
      assert.equal(call.frames.length, before, 'nothing is sent unasked');
      await page.keyboard.down('Space');
      await page.waitForTimeout(700);
      await page.keyboard.up('Space');
      await waitFor(page, () => call.messages.some((message) => message.type === 'response.create'), PATIENCE_MS);
      assert.ok(call.frames.length > before + 20);
      const types = call.messages.map((message) => message.type).filter((type) => !type.startsWith('duolog.'));
      assert.deepEqual(types.slice(-2), ['input_audio_buffer.commit', 'response.create']);
      const update = call.messages.find((message) => message.type === 'session.update');
      assert.deepEqual(update?.['session'], { type: 'realtime', audio: { input: { turn_detection: null } } });
    });
  });

  test('the models still warming: parts are named and the call starts by itself', async () => {
    const parts = { llm: { ready: false, detail: 'loading weights' }, tts: { ready: true, detail: 'ready' } };
    await onPage(browser, { parts }, async (page, server) => {
      await page.click('#call-button');
      await noticeSays(page, 'The models are still warming up');
      await noticeSays(page, 'loading weights');
      server.options.parts = {};
      const record = await waitFor(page, ({ phase }) => phase === 'live', PATIENCE_MS);
      assert.equal(record.phase, 'live');
    });
  });

  test('a full server says when to come back', async () => {
    await onPage(browser, { full: true }, async (page) => {
      await page.click('#call-button');
      await noticeSays(page, 'All lines are busy');
      await noticeSays(page, 'Room is expected in 30 s.');
      assert.equal((await snapshot(page)).phase, 'ended');
    });
  });

  test('a server that goes away is counted down to', async () => {
    await onPage(browser, {}, async (page, server) => {
      await start(page);
      await server.stop();
      await noticeSays(page, 'The server does not answer');
      await noticeSays(page, 'Next try in');
      await page.click('#call-button');
      assert.equal((await snapshot(page)).phase, 'ended');
    });
  });

  test('by keyboard: L opens the overlay, Escape in it closes it and does not interrupt, elsewhere it does', async () => {
    await onPage(browser, { answerSeconds: 6 }, async (page, server) => {
      await start(page);
      await waitFor(page, (record) => (record.counts.playout.played[2] ?? 0) > 0, PATIENCE_MS);
      const cancels = () => server.calls[0].messages.filter((message) => message.type === 'response.cancel').length;
      await page.keyboard.press('l');
      await page.locator('#overlay').waitFor();
      await page.keyboard.press('Escape');
      assert.equal(await page.locator('#overlay').isVisible(), false);
      assert.equal(await page.evaluate(() => document.activeElement?.id), 'overlay-toggle');
      assert.equal(cancels(), 0);
      await page.keyboard.press('Escape');
      await waitFor(page, () => cancels() === 1, PATIENCE_MS);
      assert.equal(cancels(), 1);
    });
  });

  test('on a phone, the conversation can still be read after the call', async () => {
    await onPage(browser, {}, async (page) => {
      await start(page);
      await waitFor(page, (record) => record.lines.some((line) => line.text === QUESTION), PATIENCE_MS);
      await page.click('#call-button');
      const words = page.locator('.line .words', { hasText: QUESTION });
      await words.scrollIntoViewIfNeeded();
      const box = await words.boundingBox();
      assert.ok(box && box.y > 0 && box.y + box.height <= 568, `the words are at ${JSON.stringify(box)}`);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 320);
    }, { context: { viewport: { width: 320, height: 568 } } });
  });

  test('the page speaks Chinese where the browser does, and can be switched', async () => {
    await onPage(browser, {}, async (page) => {
      assert.equal(await page.locator('#call-label').textContent(), '开始通话');
      await page.click('#language');
      assert.equal(await page.locator('#call-label').textContent(), 'Start call');
    }, { context: { locale: 'zh-CN' } });
  });
});

describe('the page without a microphone', { skip: skipReason(), concurrency: false }, () => {
  /** @type {Browser} */ let browser;

  before(async () => {
    browser = await launch({ wav: null });
  });

  after(async () => browser?.close());

  test('a refused microphone is explained, and typing works and is answered aloud', async () => {
    await onPage(browser, { answerSeconds: 1 }, async (page, server) => {
      await page.click('#call-button');
      await noticeSays(page, 'The microphone was refused');
      assert.equal(server.calls.length, 0);
      await page.getByRole('button', { name: 'Type instead' }).click();
      await waitFor(page, ({ phase }) => phase === 'live', PATIENCE_MS);
      await page.fill('#message', 'Good evening');
      await page.keyboard.press('Enter');
      const record = await waitFor(page, ({ lines, counts }) => {
        return lines.some((line) => line.text === 'Good evening') && counts.playout.energy > 1;
      }, PATIENCE_MS);
      assert.ok(record.lines.some((line) => line.role === 'user' && !line.spoken));
      assert.ok(record.counts.playout.energy > 1);
      assert.equal(record.counts.microphone.sentFrames, 0);
    });
  });

  test('a list of personas that cannot be read at first appears by itself, and calls need not wait for it', async () => {
    const server = new FakeServer({ withoutPersonas: true });
    const url = await server.start();
    const page = await (await browser.newContext({ locale: 'en-US' })).newPage();
    try {
      await page.goto(url);
      await page.getByText('The list of personas cannot be read yet').waitFor({ timeout: PATIENCE_MS });
      await page.click('#call-button');
      await page.getByRole('button', { name: 'Type instead' }).click();
      await waitFor(page, ({ phase }) => phase === 'live', PATIENCE_MS);
      assert.equal(server.calls[0].url.searchParams.get('model'), null);
      assert.equal((await snapshot(page)).persona, 'ava', 'the server says who its default is');
      server.options.withoutPersonas = false;
      await page.locator('#bot-name', { hasText: 'Ava' }).waitFor({ timeout: PATIENCE_MS });
      await page.click('#call-button');
      await page.locator('.persona').first().waitFor({ timeout: PATIENCE_MS });
      assert.equal(await page.getByText('The list of personas cannot be read yet').count(), 0);
    } finally {
      await page.close();
      await server.stop();
    }
  });

  test('a server with a key asks for it, and takes it', async () => {
    const server = new FakeServer({ key: 'sesame' });
    const page = await (await browser.newContext({ locale: 'en-US' })).newPage();
    try {
      await page.goto(await server.start());
      await noticeSays(page, 'The server wants a valid key');
      await page.fill('.key-label input', 'sesame');
      await page.getByRole('button', { name: 'Use this key' }).click();
      await page.waitForSelector('.persona');
      assert.equal(await page.locator('#notice').isVisible(), false);
    } finally {
      await page.close();
      await server.stop();
    }
  });

  test('a wrong key is told when the call is refused', async () => {
    await onPage(browser, {}, async (page, server) => {
      server.options.key = 'sesame';
      await page.click('#call-button');
      await page.getByRole('button', { name: 'Type instead' }).click();
      await noticeSays(page, 'The server wants a valid key');
      assert.equal((await snapshot(page)).phase, 'ended');
    });
  });

  test('a key in the address is used and taken out of it', async () => {
    await onPage(browser, { key: 'sesame' }, async (page) => {
      assert.equal(page.url().includes('sesame'), false);
      assert.equal(await page.locator('#notice').isVisible(), false);
    }, { hash: '#key=sesame' });
  });
});
