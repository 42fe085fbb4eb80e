import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { en } from '../js/i18n/en.js';
import { preferredLanguage, say, setLanguage } from '../js/i18n/words.js';
import { zh } from '../js/i18n/zh.js';

const WEB_ROOT = new URL('../', import.meta.url);

test('both languages say the same things with the same values', () => {
  assert.deepEqual(Object.keys(zh), Object.keys(en));
  const values = (/** @type {string} */ text) => (text.match(/\{\w+\}/g) ?? []).sort();
  for (const [key, text] of Object.entries(en)) {
    assert.deepEqual(values(/** @type {Record<string, string>} */ (zh)[key]), values(text), key);
  }
});

test('the first preferred language that the page speaks is taken', () => {
  assert.equal(preferredLanguage(['fr-FR', 'zh-TW', 'en']), 'zh');
  assert.equal(preferredLanguage(['fr']), 'en');
  setLanguage('zh');
  assert.equal(say('retryIn', { seconds: 3 }), '3 秒后重试。');
  setLanguage('en');
});

test('every word named in the page exists', async () => {
  const html = await readFile(new URL('index.html', WEB_ROOT), 'utf8');
  for (const [, key] of html.matchAll(/data-say(?:-\w+)?="(\w+)"/g)) assert.ok(key in en, key);
});

test('the page asks nothing of other hosts', async () => {
  const names = await readdir(WEB_ROOT, { recursive: true });
  const files = names.filter((name) => /^(index\.html|(js|css)\/.*\.(js|css))$/.test(name));
  for (const file of files) {
    const text = await readFile(new URL(file, WEB_ROOT), 'utf8');
    const hosts = [...text.matchAll(/(?:https?|wss?):\/\/([\w.-]+)/g)].map(([, host]) => host);
    assert.deepEqual(hosts.filter((host) => !['127.0.0.1', 'www.w3.org'].includes(host)), [], file);
  }
});
