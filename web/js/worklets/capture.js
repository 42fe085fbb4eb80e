/** Microphone → 16 kHz PCM16 frames of 20 ms, each with the audio time at which its last sample was captured. */

import { mixToMono, rms, toPcm16 } from '../core/pcm.js';
import { StreamResampler } from '../core/resampler.js';

const FRAME_SAMPLES = 320;
const OUTPUT_RATE_HZ = 16_000;

class CaptureProcessor extends AudioWorkletProcessor {
  #resampler = new StreamResampler(sampleRate, OUTPUT_RATE_HZ);
  #frame = new Float32Array(FRAME_SAMPLES);
  #filled = 0;

  /**
   * @param {Float32Array[][]} inputs
   * @returns {boolean}
   */
  process(inputs) {
    const channels = inputs[0];
    if (channels.length === 0) return true;
    const block = mixToMono(channels);
    const blockEndS = currentTime + block.length / sampleRate;
    const produced = this.#resampler.process(block);
    for (let i = 0; i < produced.length; i += 1) {
      this.#frame[this.#filled] = produced[i];
      this.#filled += 1;
      if (this.#filled === FRAME_SAMPLES) this.#post(blockEndS, produced.length - 1 - i);
    }
    return true;
  }

  /**
   * @param {number} blockEndS audio time at which the newest input sample was captured
   * @param {number} samplesAfter output samples already made after the frame's last one
   */
  #post(blockEndS, samplesAfter) {
    const behindS = (this.#resampler.inputSamples - this.#resampler.nextInputPosition) / sampleRate;
    const endS = blockEndS - behindS - (1 + samplesAfter) / OUTPUT_RATE_HZ;
    const samples = toPcm16(this.#frame);
    this.port.postMessage({ samples, endS, level: rms(this.#frame) }, [/** @type {ArrayBuffer} */ (samples.buffer)]);
    this.#filled = 0;
  }
}

registerProcessor('duolog-capture', CaptureProcessor);
