/** The user's microphone: asked for, exchanged, and gone. Echo cancellation is the browser's. */

/**
 * @typedef {object} AudioDevices
 * @property {MediaDeviceInfo[]} inputs
 * @property {MediaDeviceInfo[]} outputs
 */

export class Microphone {
  /** @type {MediaStream} */ #stream;

  /** @param {MediaStream} stream */
  constructor(stream) {
    this.#stream = stream;
  }

  /**
   * Throws the DOMException of `getUserMedia`.
   *
   * @param {string} deviceId empty for the default
   * @param {() => void} onLost unplugged, or taken away
   * @returns {Promise<Microphone>}
   */
  static async open(deviceId, onLost) {
    const stream = await navigator.mediaDevices.getUserMedia({
      audio: {
        echoCancellation: true,
        noiseSuppression: true,
        autoGainControl: true,
        channelCount: 1,
        ...(deviceId ? { deviceId: { exact: deviceId } } : {}),
      },
    });
    for (const track of stream.getAudioTracks()) track.onended = onLost;
    return new Microphone(stream);
  }

  get stream() {
    return this.#stream;
  }

  get deviceId() {
    return this.#stream.getAudioTracks()[0]?.getSettings().deviceId ?? '';
  }

  close() {
    for (const track of this.#stream.getTracks()) {
      track.onended = null;
      track.stop();
    }
  }
}

/**
 * What there is to choose from; browsers name devices only once the microphone was allowed.
 *
 * @returns {Promise<AudioDevices>}
 */
export async function audioDevices() {
  const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  return {
    inputs: devices.filter((device) => device.kind === 'audioinput'),
    outputs: devices.filter((device) => device.kind === 'audiooutput'),
  };
}

/**
 * Whether a call can be made from this page at all.
 *
 * @returns {'unsupported' | 'insecure' | null}
 */
export function obstacle() {
  if (!window.isSecureContext) return 'insecure';
  const needed = ['AudioContext', 'AudioWorkletNode', 'WebSocket'].every((name) => name in window);
  return needed && navigator.mediaDevices ? null : 'unsupported';
}
