/** Something speech-like enough for an energy detector and a noise suppressor: made here, so that no recording is kept. */

import { writeFile } from 'node:fs/promises';

const RATE_HZ = 48_000;

/**
 * Syllables of a gliding, buzzing voice for `speechS`, then quiet.
 *
 * @param {string} path
 * @param {{ leadS?: number, speechS: number, quietS: number }} lengths
 */
export async function writeToneWav(path, { leadS = 0.5, speechS, quietS }) {
  const count = Math.round((leadS + speechS + quietS) * RATE_HZ);
  const bytes = Buffer.alloc(44 + 2 * count);
  bytes.write('RIFF', 0).toString();
  bytes.writeUInt32LE(36 + 2 * count, 4);
  bytes.write('WAVEfmt ', 8);
  bytes.writeUInt32LE(16, 16);
  bytes.writeUInt16LE(1, 20);
  bytes.writeUInt16LE(1, 22);
  bytes.writeUInt32LE(RATE_HZ, 24);
  bytes.writeUInt32LE(2 * RATE_HZ, 28);
  bytes.writeUInt16LE(2, 32);
  bytes.writeUInt16LE(16, 34);
  bytes.write('data', 36);
  bytes.writeUInt32LE(2 * count, 40);
  for (let i = 0; i < count; i += 1) bytes.writeInt16LE(voice(i / RATE_HZ - leadS, speechS), 44 + 2 * i);
  await writeFile(path, bytes);
}

/**
 * @param {number} t seconds since speech began
 * @param {number} speechS
 */
function voice(t, speechS) {
  if (t < 0 || t > speechS) return 0;
  const pitch = 2 * Math.PI * (130 * t + 9 * Math.sin(2 * Math.PI * 1.3 * t));
  let sum = 0;
  for (let harmonic = 1; harmonic <= 16; harmonic += 1) {
    const formant = 500 + 400 * Math.sin(2 * Math.PI * 2.3 * t);
    const distance = (harmonic * 130 - formant) / 300;
    sum += Math.sin(harmonic * pitch) / (1 + distance * distance);
  }
  const syllable = 0.25 + 0.75 * Math.abs(Math.sin(2 * Math.PI * 2.2 * t));
  return Math.round(Math.max(-1, Math.min(1, 0.28 * sum * syllable)) * 30_000);
}
