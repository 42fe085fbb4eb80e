/**
 * One call after another: the only place where the pure state, the audio and the socket meet.
 *
 * `start` is to be called within a click. Everything a view needs is `state`, `levels`, `log` and `counts`.
 */

import { AudioEngine } from '../audio/engine.js';
import { Microphone, obstacle } from '../audio/microphone.js';
import { reconnectDelayMs } from '../core/backoff.js';
import { INITIAL_STATE, isCalling, reduce } from '../core/call-state.js';
import { CaptureMap } from '../core/capture-map.js';
import { closeFault, microphoneFault } from '../core/faults.js';
import { TurnLog } from '../core/turn-log.js';
import { TypedMessages } from '../core/typed-messages.js';
import { numberAt, textAt } from '../core/wire.js';
import { Connection } from '../net/connection.js';
import { callUrl, fetchReadiness, refusalReason, subprotocols } from '../net/server.js';
import { Listener } from './listener.js';
import { Speaker } from './speaker.js';

/** @typedef {import('../core/call-state.js').Action} Action */
/** @typedef {import('../core/wire.js').WireMessage} WireMessage */

const READINESS_EVERY_MS = 1_500;
const INPUT_RATE_HZ = 16_000;
const NORMAL_CLOSURE = 1000;

export class Call {
  state = INITIAL_STATE;
  log = new TurnLog();
  /** @type {number[]} round trips of pings, in milliseconds */
  roundTrips = [];
  /** Empty until the server has said who its default is. */
  persona = '';
  key = '';
  inputId = '';
  outputId = '';
  #captured = new CaptureMap(INPUT_RATE_HZ);
  #typed = new TypedMessages(newId);
  /** @type {Listener} */ #listener;
  /** @type {Speaker} */ #speaker;
  /** @type {AudioEngine | null} */ #engine = null;
  /** @type {Microphone | null} */ #microphone = null;
  /** @type {Connection | null} */ #connection = null;
  #attempt = 0;
  /** @type {number | undefined} */ #timer;
  /** Grows with each call: what an older call still awaits is void. */
  #epoch = 0;
  /** @type {() => void} */ #changed;

  /** @param {() => void} changed the state has changed */
  constructor(changed) {
    this.#changed = changed;
    this.#listener = this.#newListener();
    this.#speaker = this.#newSpeaker();
  }

  get levels() {
    return { user: this.state.microphone === 'on' ? this.#listener.level : 0, assistant: this.#speaker.level };
  }

  get counts() {
    return { microphone: this.#listener.counts, playout: this.#speaker.counts };
  }

  get contextRateHz() {
    return this.#engine?.sampleRateHz ?? null;
  }

  get canChooseOutput() {
    return 'setSinkId' in AudioContext.prototype;
  }

  /**
   * @param {string} persona
   * @param {{ microphone: boolean }} options without a microphone the user types
   */
  async start(persona, { microphone }) {
    if (isCalling(this.state)) return;
    this.#prepare(persona);
    const epoch = this.#epoch;
    const fault = obstacle();
    if (fault === 'unsupported' || (fault === 'insecure' && microphone)) {
      this.dispatch({ kind: 'fault', fault: { kind: fault } });
      return;
    }
    if (fault === null) await this.#openAudio(epoch);
    if (!(await this.#serverReady(epoch))) return;
    if (microphone && !(await this.#openMicrophone(epoch))) return;
    if (!microphone) this.dispatch({ kind: 'microphone', microphone: 'without' });
    this.#connect(epoch);
  }

  hangUp() {
    this.dispatch({ kind: 'hangUp' });
  }

  /** Stop the answer. */
  interrupt() {
    this.#speaker.silence();
    this.#typed.interrupted();
    this.#send({ type: 'response.cancel' });
  }

  /** @param {string} text goes out when the line is back, where it is down */
  say(text) {
    if (this.state.playing || this.state.activity === 'thinking') this.interrupt();
    this.#sendAll(this.#typed.write(text));
  }

  /** @param {boolean} muted */
  mute(muted) {
    this.dispatch({ kind: 'muted', muted });
    this.#listener.mute(muted);
  }

  /** @param {boolean} enabled */
  pushToTalk(enabled) {
    this.dispatch({ kind: 'pushToTalk', enabled });
    this.#listener.pushToTalk(enabled);
  }

  /** @param {boolean} talking */
  talk(talking) {
    if (this.state.talking === talking) return;
    this.dispatch({ kind: 'talking', talking });
    if (this.state.talking !== talking) return;
    if (talking && this.state.playing) this.interrupt();
    if (talking) this.#listener.press();
    else this.#listener.release();
  }

  /** @param {string} deviceId */
  async chooseInput(deviceId) {
    this.inputId = deviceId;
    if (this.state.microphone === 'on') await this.#openMicrophone(this.#epoch);
  }

  /** @param {string} deviceId */
  async chooseOutput(deviceId) {
    this.outputId = deviceId;
    await this.#engine?.chooseOutput(deviceId);
  }

  /** Devices came or went: a lost microphone may be replaced. */
  async devicesChanged() {
    if (isCalling(this.state) && this.state.fault?.kind === 'microphoneLost') await this.#openMicrophone(this.#epoch);
  }

  /** Sound was taken away, by a phone call or a closed lid: ask for it back. */
  async resumeAudio() {
    if (this.#engine && this.#engine.state !== 'running') await this.#engine.resume();
  }

  /** @param {Action} action */
  dispatch(action) {
    const wasCalling = isCalling(this.state);
    this.state = reduce(this.state, action);
    if (wasCalling && !isCalling(this.state)) this.#tearDown();
    this.#changed();
  }

  /** @param {string} persona */
  #prepare(persona) {
    this.persona = persona;
    this.#epoch += 1;
    this.#attempt = 0;
    this.log = new TurnLog();
    this.roundTrips = [];
    this.#captured.reset();
    this.#typed = new TypedMessages(newId);
    this.#listener = this.#newListener();
    this.#speaker = this.#newSpeaker();
    this.dispatch({ kind: 'start' });
    if (this.state.muted) this.#listener.mute(true);
    if (this.state.pushToTalk) this.#listener.pushToTalk(true);
  }

  /** @param {number} epoch */
  async #openAudio(epoch) {
    const engine = await AudioEngine.open({
      onCapture: ({ samples, level }, atMs) => this.#listener.frame(samples, level, atMs),
      onPlayback: (news) => this.#speaker.playback(news),
      onState: (state) => this.#audioState(state),
    });
    if (this.#void(epoch)) {
      await engine.close();
      return;
    }
    this.#engine = engine;
    if (this.outputId) await engine.chooseOutput(this.outputId);
  }

  /**
   * Wait until the server is warm; it says what it waits for. A server that does not answer is left to the socket.
   *
   * @param {number} epoch
   * @returns {Promise<boolean>} false: the call has ended meanwhile
   */
  async #serverReady(epoch) {
    for (;;) {
      const readiness = await fetchReadiness();
      if (this.#void(epoch)) return false;
      if (!readiness || readiness.ready || readiness.parts.length === 0) return true;
      this.dispatch({ kind: 'warming', parts: readiness.parts });
      await new Promise((resolve) => window.setTimeout(resolve, READINESS_EVERY_MS));
      if (this.#void(epoch)) return false;
    }
  }

  /**
   * @param {number} epoch
   * @returns {Promise<boolean>}
   */
  async #openMicrophone(epoch) {
    try {
      const microphone = await Microphone.open(this.inputId, () => void this.#microphoneLost());
      if (this.#void(epoch)) {
        microphone.close();
        return false;
      }
      this.#microphone?.close();
      this.#microphone = microphone;
      this.#engine?.listenTo(microphone.stream);
      this.dispatch({ kind: 'microphone', microphone: 'on' });
      if (this.state.fault?.kind === 'microphoneLost') this.dispatch({ kind: 'dismiss' });
      return true;
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
      if (!this.#void(epoch)) this.#microphoneFailed(error.name);
      return false;
    }
  }

  /** @param {string} errorName */
  #microphoneFailed(errorName) {
    if (this.inputId) this.inputId = '';
    const fault = microphoneFault(errorName);
    if (this.state.phase === 'live') {
      this.dispatch({ kind: 'microphone', microphone: 'without' });
      this.dispatch({ kind: 'fault', fault: { kind: 'microphoneLost' } });
    } else {
      this.dispatch({ kind: 'hangUp' });
      this.dispatch({ kind: 'fault', fault });
    }
  }

  async #microphoneLost() {
    this.#engine?.listenTo(null);
    this.#microphone?.close();
    this.#microphone = null;
    this.inputId = '';
    this.dispatch({ kind: 'microphone', microphone: 'without' });
    this.dispatch({ kind: 'fault', fault: { kind: 'microphoneLost' } });
    await this.#openMicrophone(this.#epoch);
  }

  get #request() {
    return { persona: this.persona, sessionId: this.state.sessionId, greeting: true };
  }

  /** @param {number} epoch */
  #connect(epoch) {
    this.dispatch({ kind: 'connect' });
    this.#connection = new Connection(callUrl(this.#request), subprotocols(this.key), {
      onMessage: (message) => this.#received(message),
      onFrame: (bytes) => this.#speaker.frame(bytes),
      onClosed: (how) => void this.#lineLost(epoch, how),
    });
  }

  /** @param {WireMessage} message */
  #received(message) {
    if (message.type === 'session.created') {
      this.#attempt = 0;
      this.#listener.connected(turnDetectionOf(message));
      // Without sound on this page nothing would ever be heard: answer in writing.
      if (!this.#engine) this.#send({ type: 'session.update', session: { type: 'realtime', output_modalities: ['text'] } });
      this.#sendAll(this.#typed.again());
    }
    this.#sendAll(this.#typed.received(message));
    if (message.type === 'duolog.pong') {
      const sentMs = numberAt(message, 'client_time_ms');
      if (sentMs !== null) this.roundTrips.push(performance.now() - sentMs);
      return;
    }
    if (message.type === 'duolog.session') this.persona = textAt(message, 'persona') || this.persona;
    this.#speaker.message(message);
    this.dispatch({ kind: 'message', message });
  }

  /**
   * @param {number} epoch
   * @param {{ opened: boolean, code: number, reason: string }} how
   */
  async #lineLost(epoch, { opened, code, reason }) {
    this.#connection = null;
    this.#speaker.reset();
    this.#listener.disconnected();
    if (opened && code === NORMAL_CLOSURE) {
      this.hangUp();
      return;
    }
    const fault = closeFault(code, reason) ?? (opened ? null : await refusalReason(this.#request, this.key));
    if (this.#void(epoch)) return;
    const comesBack = fault === null || fault.kind === 'warming' || (fault.kind === 'full' && this.state.sessionId !== null);
    if (!comesBack) this.dispatch({ kind: 'fault', fault });
    else this.#callAgain(epoch);
  }

  /** @param {number} epoch */
  #callAgain(epoch) {
    this.#attempt += 1;
    const delayMs = reconnectDelayMs(this.#attempt, Math.random());
    if (delayMs === null) {
      this.dispatch({ kind: 'hangUp' });
      this.dispatch({ kind: 'fault', fault: { kind: 'gone' } });
      return;
    }
    this.dispatch({ kind: 'retryAt', atMs: performance.now() + delayMs });
    this.dispatch({ kind: 'fault', fault: { kind: 'gone' } });
    this.#timer = window.setTimeout(() => void this.#tryAgain(epoch), delayMs);
  }

  /** @param {number} epoch */
  async #tryAgain(epoch) {
    if (await this.#serverReady(epoch)) this.#connect(epoch);
  }

  /** Do not wait for the countdown. */
  retryNow() {
    if (this.state.phase !== 'reconnecting') return;
    window.clearTimeout(this.#timer);
    void this.#tryAgain(this.#epoch);
  }

  /** @param {string} state */
  #audioState(state) {
    if (state === 'running' && this.state.fault?.kind === 'audioInterrupted') this.dispatch({ kind: 'dismiss' });
    if ((state === 'interrupted' || state === 'suspended') && isCalling(this.state)) {
      this.dispatch({ kind: 'fault', fault: { kind: 'audioInterrupted' } });
    }
  }

  /** @param {WireMessage} message */
  #send(message) {
    this.#connection?.send(message);
  }

  /** @param {WireMessage[]} messages */
  #sendAll(messages) {
    for (const message of messages) this.#send(message);
  }

  /** @param {number} epoch */
  #void(epoch) {
    return epoch !== this.#epoch || !isCalling(this.state);
  }

  #tearDown() {
    window.clearTimeout(this.#timer);
    this.#connection?.close();
    this.#connection = null;
    this.#listener.disconnected();
    this.#microphone?.close();
    this.#microphone = null;
    void this.#engine?.close();
    this.#engine = null;
    this.#speaker.level = 0;
  }

  #newListener() {
    return new Listener({
      send: (message) => this.#send(message),
      sendFrame: (frame) => this.#connection?.sendFrame(frame) ?? false,
      captured: this.#captured,
    });
  }

  #newSpeaker() {
    return new Speaker({
      play: (command) => this.#engine?.play(command),
      send: (message) => this.#send(message),
      pageMs: (audioS) => this.#engine?.pageMs(audioS) ?? null,
      outputLatencyMs: () => this.#engine?.outputLatencyMs ?? null,
      dispatch: (action) => this.dispatch(action),
      log: this.log,
      captured: this.#captured,
    });
  }
}

/** 96 random bits in hexadecimal; `randomUUID` is there on secure pages only. */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/**
 * @param {WireMessage} message `session.created`
 * @returns {unknown} undefined where the server does not say
 */
function turnDetectionOf(message) {
  /** @type {unknown} */
  let found = message;
  for (const name of ['session', 'audio', 'input', 'turn_detection']) {
    if (found === null || typeof found !== 'object') return undefined;
    found = Reflect.get(found, name);
  }
  return found;
}
