/**
 * Binary frames of Duolog's wire extensions (docs/extensions.md). Pure: bytes in, values out.
 *
 * Samples are PCM16 little-endian, which is also the byte order of every platform a browser runs on.
 */

const MICROPHONE_KIND = 1;
const SPEECH_KIND = 2;
const MICROPHONE_HEADER_BYTES = 4;
const SPEECH_HEADER_BYTES = 12;
const SEQUENCE_MODULUS = 0x10000;

/**
 * @typedef {object} SpeechFrame
 * @property {number} generation
 * @property {number} startSample position of the first sample within the generation, at the session's output rate
 * @property {Int16Array} samples
 */

/**
 * One microphone frame, ready to send.
 *
 * @param {number} sequence counts frames; wraps at 65,536
 * @param {Int16Array} samples mono, at the session's input rate
 * @returns {ArrayBuffer}
 */
export function encodeMicrophoneFrame(sequence, samples) {
  const bytes = new ArrayBuffer(MICROPHONE_HEADER_BYTES + samples.byteLength);
  const view = new DataView(bytes);
  view.setUint8(0, MICROPHONE_KIND);
  view.setUint8(1, 0);
  view.setUint16(2, sequence % SEQUENCE_MODULUS, true);
  new Int16Array(bytes, MICROPHONE_HEADER_BYTES).set(samples);
  return bytes;
}

/**
 * A speech frame as it came from the server; null for anything else: other kinds, short or odd byte counts.
 *
 * @param {ArrayBuffer} bytes
 * @returns {SpeechFrame | null}
 */
export function decodeSpeechFrame(bytes) {
  if (bytes.byteLength < SPEECH_HEADER_BYTES || bytes.byteLength % 2 !== 0) return null;
  const view = new DataView(bytes);
  if (view.getUint8(0) !== SPEECH_KIND) return null;
  return {
    generation: view.getUint32(4, true),
    startSample: view.getUint32(8, true),
    samples: new Int16Array(bytes, SPEECH_HEADER_BYTES),
  };
}
