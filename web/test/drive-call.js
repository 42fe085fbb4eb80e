/**
 * Places a call from the page in headless Chromium, with a WAV file as the microphone, and writes what the page knows.
 *
 *   node test/drive-call.js --url URL --wav FILE --seconds N --out result.json [--screenshot PNG]
 *
 * It ends as soon as a spoken turn was heard in full, or after N seconds. Exit status: 0 if captions, an answer, its
 * sound and the overlay were all seen; 1 if one was not, which is named; 2 for wrong arguments.
 */

import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';

import { launch } from './chromium.js';

/** The overlay has slid in. */
const SETTLED_MS = 600;

/** @typedef {ReturnType<typeof import('../js/core/call-record.js').callRecord>} CallRecord */

/**
 * @param {import('playwright-core').Page} page
 * @returns {Promise<CallRecord>}
 */
export function snapshot(page) {
  return page.evaluate(() => Reflect.get(window, 'duolog').snapshot());
}

/**
 * @param {import('playwright-core').Page} page
 * @param {(record: CallRecord) => boolean} wanted
 * @param {number} timeoutMs
 * @returns {Promise<CallRecord>} the record as it is when wanted, or when time is up
 */
export async function waitFor(page, wanted, timeoutMs) {
  const until = performance.now() + timeoutMs;
  for (;;) {
    const record = await snapshot(page);
    if (wanted(record) || performance.now() > until) return record;
    await page.waitForTimeout(50);
  }
}

/**
 * What was to be seen, by name.
 *
 * @param {CallRecord} record
 */
export function seen(record) {
  const said = (/** @type {string} */ role) => record.lines.some((line) => line.role === role && line.text !== '');
  return {
    captions: said('user'),
    answer: said('assistant'),
    audio: record.counts.playout.energy > 0.01,
    waterfall: record.turns.some((turn) => turn.renderedMs !== null && turn.bars.length > 3),
  };
}

async function main() {
  const { values } = parseArgs({
    options: {
      url: { type: 'string' }, wav: { type: 'string' }, seconds: { type: 'string', default: '30' },
      out: { type: 'string' }, screenshot: { type: 'string' },
    },
  });
  const { url, wav, seconds, out, screenshot } = values;
  if (!url || !wav || !out) {
    process.stderr.write('usage: drive-call.js --url URL --wav FILE --seconds N --out result.json [--screenshot PNG]\n');
    return 2;
  }
  const browser = await launch({ wav, loop: false });
  try {
    const page = await browser.newPage({ viewport: { width: 1360, height: 860 } });
    /** @type {string[]} */
    const pageErrors = [];
    page.on('pageerror', (error) => pageErrors.push(error.message));
    await page.goto(url);
    await page.click('#call-button');
    const record = await waitFor(page, heardInFull, Number(seconds) * 1000);
    await page.click('#overlay-toggle');
    await page.locator('.waterfall').first().waitFor({ timeout: 5000 }).catch(() => null);
    const drawings = await page.locator('.waterfall').count();
    await page.waitForTimeout(SETTLED_MS);
    if (screenshot) await page.screenshot({ path: screenshot });
    const checks = { ...seen(record), overlay: drawings > 0, noPageErrors: pageErrors.length === 0 };
    await writeFile(out, JSON.stringify({ checks, pageErrors, ...record }, null, 2));
    const missing = Object.entries(checks).filter(([, ok]) => !ok).map(([name]) => name);
    if (missing.length > 0) process.stderr.write(`not seen: ${missing.join(', ')}\n`);
    return missing.length > 0 ? 1 : 0;
  } finally {
    await browser.close();
  }
}

/** @param {CallRecord} record */
function heardInFull(record) {
  const last = record.lines.at(-1);
  return Object.values(seen(record)).every(Boolean) && !record.playing && last?.role === 'assistant' && last.final;
}

if (process.argv[1] === new URL(import.meta.url).pathname) process.exitCode = await main();
