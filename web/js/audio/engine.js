/**
 * The page's audio: one context at the device's own rate, a capture worklet and a playback worklet.
 *
 * `AudioEngine.open` must be called within a click, before anything is awaited: Safari gives sound to nobody else.
 */

import { ClockFit } from '../core/clock-fit.js';

/** @typedef {import('../core/playback-messages.js').PlaybackCommand} PlaybackCommand */
/** @typedef {import('../core/playback-messages.js').PlaybackNews} PlaybackNews */
/** @typedef {{ samples: Int16Array, endS: number, level: number }} CapturedFrame */

/**
 * @typedef {object} EngineEvents
 * @property {(frame: CapturedFrame, capturedAtMs: number | null) => void} onCapture
 * @property {(news: PlaybackNews) => void} onPlayback
 * @property {(state: string) => void} onState the context's state: `running`, `suspended`, `interrupted`, `closed`
 */

export class AudioEngine {
  /** @type {AudioContext} */ #context;
  /** @type {EngineEvents} */ #events;
  #clock = new ClockFit();
  /** @type {AudioWorkletNode | null} */ #capture = null;
  /** @type {AudioWorkletNode | null} */ #playback = null;
  /** @type {MediaStreamAudioSourceNode | null} */ #source = null;

  /**
   * @param {AudioContext} context
   * @param {EngineEvents} events
   */
  constructor(context, events) {
    this.#context = context;
    this.#events = events;
    context.onstatechange = () => events.onState(context.state);
  }

  /**
   * @param {EngineEvents} events
   * @returns {Promise<AudioEngine>}
   */
  static async open(events) {
    const context = new AudioContext({ latencyHint: 'interactive' });
    const resumed = context.resume();
    const engine = new AudioEngine(context, events);
    await Promise.all([resumed, engine.#load()]);
    return engine;
  }

  get sampleRateHz() {
    return this.#context.sampleRate;
  }

  get state() {
    return /** @type {string} */ (this.#context.state);
  }

  get canChooseOutput() {
    return 'setSinkId' in this.#context;
  }

  /** @param {PlaybackCommand} command */
  play(command) {
    const transfer = command.kind === 'samples' ? [/** @type {ArrayBuffer} */ (command.pcm.buffer)] : [];
    this.#playback?.port.postMessage(command, transfer);
  }

  /**
   * Listen to this stream from now on; null: to nothing.
   *
   * @param {MediaStream | null} stream
   */
  listenTo(stream) {
    this.#source?.disconnect();
    this.#source = null;
    if (!stream || !this.#capture) return;
    this.#source = this.#context.createMediaStreamSource(stream);
    this.#source.connect(this.#capture);
  }

  /** @param {string} deviceId empty for the default */
  async chooseOutput(deviceId) {
    const setSinkId = Reflect.get(this.#context, 'setSinkId');
    if (typeof setSinkId === 'function') await setSinkId.call(this.#context, deviceId);
  }

  async resume() {
    await this.#context.resume();
  }

  /**
   * The page's time at which a frame of the context's clock is rendered.
   *
   * @param {number} audioS
   */
  pageMs(audioS) {
    this.#clock.observe(this.#context.currentTime, performance.now());
    return this.#clock.pageMs(audioS);
  }

  /** From rendered to the loudspeaker, in milliseconds, as far as the browser tells. */
  get outputLatencyMs() {
    const { baseLatency, outputLatency } = this.#context;
    const known = [baseLatency, outputLatency].filter((latency) => Number.isFinite(latency));
    return known.length === 0 ? null : known.reduce((sum, latency) => sum + latency, 0) * 1000;
  }

  async close() {
    this.listenTo(null);
    this.#context.onstatechange = null;
    if (this.#context.state !== 'closed') await this.#context.close();
  }

  async #load() {
    const context = this.#context;
    const addModule = (/** @type {string} */ name) => {
      return context.audioWorklet.addModule(new URL(`../worklets/${name}.js`, import.meta.url));
    };
    await Promise.all([addModule('capture'), addModule('playback')]);
    this.#playback = new AudioWorkletNode(context, 'duolog-playback', { numberOfInputs: 0, outputChannelCount: [2] });
    this.#playback.port.onmessage = (event) => this.#events.onPlayback(event.data);
    this.#playback.connect(context.destination);
    this.#capture = new AudioWorkletNode(context, 'duolog-capture');
    this.#capture.port.onmessage = (event) => this.#captured(event.data);
    // Silent, but connected: browsers differ in whether they run a node that leads nowhere.
    this.#capture.connect(context.destination);
  }

  /** @param {CapturedFrame} frame */
  #captured(frame) {
    this.#events.onCapture(frame, this.pageMs(frame.endS));
  }
}
