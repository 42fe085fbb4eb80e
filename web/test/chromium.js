/** Headless Chromium with a WAV file as its microphone. */

import { existsSync } from 'node:fs';

import { chromium } from 'playwright-core';

const PLACES = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome', '/usr/bin/google-chrome-stable'];
const QUIET = [
  '--no-sandbox', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--no-first-run',
  '--disable-default-apps', '--disable-domain-reliability', '--metrics-recording-only', '--disable-gpu',
  '--autoplay-policy=user-gesture-required',
];

/** @returns {string | null} path of the browser: `CHROMIUM` where it is set, else where systems put it */
export function chromiumPath() {
  const wanted = process.env['CHROMIUM'];
  const places = wanted ? [wanted] : PLACES;
  return places.find((place) => existsSync(place)) ?? null;
}

/** @returns {string | false} why tests with a browser are left out; false: they are not */
export function skipReason() {
  return chromiumPath() ? false : 'no Chromium: install the package "chromium", or name one in CHROMIUM';
}

/**
 * @param {object} options
 * @param {string | null} [options.wav] played as the microphone; null: a browser without allowed microphone
 * @param {boolean} [options.loop]
 * @returns {Promise<import('playwright-core').Browser>}
 */
export async function launch({ wav = null, loop = true }) {
  const path = chromiumPath();
  if (!path) throw new Error(String(skipReason()));
  const microphone = wav
    ? ['--use-fake-ui-for-media-stream', `--use-file-for-fake-audio-capture=${wav}${loop ? '' : '%noloop'}`]
    : [];
  const args = [...QUIET, '--use-fake-device-for-media-stream', ...microphone];
  return chromium.launch({ executablePath: path, args, headless: true });
}
