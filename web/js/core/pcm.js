/** PCM16 and floating-point samples, and how loud they are. Pure. */

const SILENCE_DB = -60;

/**
 * @param {Float32Array} samples from −1 to 1; beyond is clipped
 * @returns {Int16Array}
 */
export function toPcm16(samples) {
  const pcm = new Int16Array(samples.length);
  for (let i = 0; i < samples.length; i += 1) {
    pcm[i] = Math.round(Math.max(-1, Math.min(1, samples[i])) * 32767);
  }
  return pcm;
}

/**
 * @param {Int16Array} pcm
 * @returns {Float32Array}
 */
export function fromPcm16(pcm) {
  const samples = new Float32Array(pcm.length);
  for (let i = 0; i < pcm.length; i += 1) samples[i] = pcm[i] / 32768;
  return samples;
}

/**
 * Root mean square, 0 to 1.
 *
 * @param {Float32Array} samples
 */
export function rms(samples) {
  let sum = 0;
  for (let i = 0; i < samples.length; i += 1) sum += samples[i] * samples[i];
  return samples.length === 0 ? 0 : Math.sqrt(sum / samples.length);
}

/**
 * A meter's needle: 0 at −60 dBFS and below, 1 at full scale.
 *
 * @param {number} level root mean square, 0 to 1
 */
export function meterFromRms(level) {
  if (level <= 0) return 0;
  return Math.max(0, Math.min(1, 1 - (20 * Math.log10(level)) / SILENCE_DB));
}

/**
 * The mean of all channels, the way a loudspeaker and a listener would add them.
 *
 * @param {Float32Array[]} channels of one length, at least one
 * @returns {Float32Array}
 */
export function mixToMono(channels) {
  if (channels.length === 1) return channels[0];
  const mono = new Float32Array(channels[0].length);
  for (const channel of channels) {
    for (let i = 0; i < mono.length; i += 1) mono[i] += channel[i] / channels.length;
  }
  return mono;
}
