/**
 * A server that speaks the page's protocol with canned words and tones, and remembers all it was told.
 *
 * It hears by energy alone: speech, then 400 ms of quiet, make a turn. Run it by hand with
 * `node test/fake-server.js [port]` to look at the page without any model.
 */

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

import { WebSocketServer } from 'ws';

const WEB_ROOT = fileURLToPath(new URL('..', import.meta.url));
const TYPES = new Map([
  ['.html', 'text/html'], ['.js', 'text/javascript'], ['.css', 'text/css'], ['.svg', 'image/svg+xml'],
]);
/** As strict as the real server's. */
const POLICY =
  "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self' " +
  "ws://127.0.0.1:*; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const OUTPUT_RATE_HZ = 24_000;
const FRAME_MS = 20;
const LOUD = 400;
const QUIET_FRAMES = 20;
const SPEECH_FRAMES = 6;

export const QUESTION = 'Which bird can fly backwards?';
export const ANSWER = 'The hummingbird can. It turns its wings in a figure of eight, and so hovers, and even flies backwards.';

const PERSONAS = [
  { id: 'ava', name: 'Ava', description: 'Warm and quick. Answers in a sentence or two and asks back.', languages: ['en'] },
  { id: 'hugo', name: 'Hugo', description: 'A retired clockmaker who takes his time and likes a good digression.', languages: ['en'] },
  { id: 'mina', name: 'Mina', description: 'Brisk coach. Short sentences, no excuses, one thing to do next.', languages: ['en'] },
  { id: 'lan', name: '小岚', description: '说话轻快的书店店员，爱推荐冷门好书。', languages: ['zh'] },
];

/** @typedef {{ type: string } & Record<string, unknown>} WireMessage */
/** @typedef {{ ready: boolean, detail: string }} Part */

/**
 * @typedef {object} FakeOptions
 * @property {Record<string, Part>} [parts] not ready while one of them is not
 * @property {boolean} [full] refuses calls with an error event
 * @property {string} [key] the only one let in
 * @property {boolean} [withoutPersonas] breaks the connection where the list is asked for
 * @property {number} [answerSeconds]
 * @property {number} [port]
 */

/** What one socket was told. */
export class FakeCall {
  /** @type {WireMessage[]} */ messages = [];
  /** @type {{ sequence: number, samples: number, atMs: number }[]} */ frames = [];
  peak = 0;
  generation = 0;
  /** @type {URL} */ url;
  /** @type {import('ws').WebSocket} */ #socket;
  #loud = 0;
  #quiet = 0;
  #samples = 0;
  #lastVoiced = 0;
  #turn = 0;
  /** @type {Map<number, { text: string, seconds: number }>} */ #answers = new Map();
  /** @type {number} */ #answerSeconds;

  /**
   * @param {import('ws').WebSocket} socket
   * @param {URL} url
   * @param {number} answerSeconds
   */
  constructor(socket, url, answerSeconds) {
    this.#socket = socket;
    this.url = url;
    this.#answerSeconds = answerSeconds;
    socket.on('message', (bytes, isBinary) => {
      const buffer = /** @type {Buffer} */ (bytes);
      if (isBinary) this.#frame(buffer);
      else this.#message(JSON.parse(buffer.toString()));
    });
  }

  /** @param {WireMessage} message */
  send(message) {
    this.#socket.send(JSON.stringify({ event_id: 'event_1', ...message }));
  }

  /** Break the line without a word. */
  drop() {
    this.#socket.terminate();
  }

  /** @returns {WireMessage[]} */
  get reports() {
    return this.messages.filter((message) => message.type === 'duolog.playout.report');
  }

  begin() {
    const turn_detection = { type: 'server_vad', silence_duration_ms: 400 };
    const id = this.url.searchParams.get('session') ?? 'sess_1';
    this.send({ type: 'session.created', session: { id, type: 'realtime', audio: { input: { turn_detection } } } });
    const resumed = this.url.searchParams.has('session');
    this.send({ type: 'duolog.session', resumed, persona: this.url.searchParams.get('model') ?? 'ava', input_rate_hz: 16_000, output_rate_hz: OUTPUT_RATE_HZ });
    this.send({ type: 'duolog.state', state: 'listening' });
    if (this.url.searchParams.get('greeting') === '1') this.answer('Hello, good to hear you.', 1, null);
  }

  flush() {
    this.generation += 1;
    this.send({ type: 'duolog.flush', generation: this.generation });
    this.send({ type: 'duolog.state', state: 'listening' });
  }

  /**
   * @param {string} text
   * @param {number} seconds
   * @param {string | null} userItem null: nobody spoke before it
   */
  answer(text, seconds, userItem) {
    this.generation += 1;
    const { generation } = this;
    this.#answers.set(generation, { text, seconds });
    const ids = { response_id: `resp_${generation}`, item_id: `item_a${generation}` };
    const places = { ...ids, output_index: 0, content_index: 0 };
    this.send({ type: 'response.created', response: { id: ids.response_id, status: 'in_progress' } });
    this.send({ type: 'conversation.item.added', item: { id: ids.item_id, role: 'assistant', content: [] } });
    this.send({ type: 'duolog.speech.started', generation, ...ids, sample_rate_hz: OUTPUT_RATE_HZ });
    this.send({ type: 'duolog.state', state: 'speaking' });
    for (const delta of text.match(/\S+\s*/g) ?? []) {
      this.send({ type: 'response.output_audio_transcript.delta', ...places, delta });
    }
    this.#speak(seconds);
    if (userItem) this.#timings(ids.response_id, userItem);
    this.send({ type: 'response.output_audio.done', ...places });
    this.send({ type: 'response.output_audio_transcript.done', ...places, transcript: text });
    this.send({ type: 'response.done', response: { id: ids.response_id, status: 'completed', output: [] } });
  }

  /** @param {number} seconds */
  #speak(seconds) {
    const chunk = OUTPUT_RATE_HZ / 10;
    for (let start = 0; start < seconds * OUTPUT_RATE_HZ; start += chunk) {
      const bytes = Buffer.alloc(12 + 2 * chunk);
      bytes.writeUInt8(2, 0);
      bytes.writeUInt32LE(this.generation, 4);
      bytes.writeUInt32LE(start, 8);
      for (let i = 0; i < chunk; i += 1) {
        const t = (start + i) / OUTPUT_RATE_HZ;
        const syllable = Math.max(0, Math.sin(2 * Math.PI * 3.1 * t)) * (0.6 + 0.4 * Math.sin(2 * Math.PI * 0.7 * t));
        bytes.writeInt16LE(Math.round(11_000 * syllable * Math.sin(2 * Math.PI * 196 * t)), 12 + 2 * i);
      }
      this.#socket.send(bytes);
    }
  }

  /**
   * @param {string} response_id
   * @param {string} item_id
   */
  #timings(response_id, item_id) {
    const early = this.#turn % 3 === 2;
    const base = early
      ? { endpoint_ms: 412, transcript_ms: 158, admitted_ms: 161, first_token_ms: 196, first_phrase_ms: 322 }
      : { endpoint_ms: 400, transcript_ms: 511, admitted_ms: 514, first_token_ms: 549, first_phrase_ms: 676 };
    this.send({
      type: 'duolog.turn.timings', response_id, item_id, generation: this.generation,
      speech_end_sample: this.#lastVoiced, ...base, first_audio_ms: early ? 401 : 741,
      first_audio_sent_ms: early ? 414 : 743, prompt_tokens: 214 + 38 * this.#turn, cached_tokens: 192 + 32 * this.#turn,
      silence_wait_ms: 320, speculation: early ? 'used' : null, wasted_speculations: early ? 0 : 2,
    });
  }

  /** @param {Buffer} bytes */
  #frame(bytes) {
    const samples = (bytes.length - 4) / 2;
    this.frames.push({ sequence: bytes.readUInt16LE(2), samples, atMs: performance.now() });
    let peak = 0;
    for (let i = 4; i < bytes.length; i += 2) peak = Math.max(peak, Math.abs(bytes.readInt16LE(i)));
    this.peak = Math.max(this.peak, peak);
    this.#samples += samples;
    this.#hear(peak > LOUD);
  }

  /** @param {boolean} loud */
  #hear(loud) {
    if (loud) this.#lastVoiced = this.#samples - 1;
    this.#loud += loud ? 1 : 0;
    this.#quiet = loud ? 0 : this.#quiet + 1;
    const words = QUESTION.match(/\S+\s*/g) ?? [];
    const item_id = `item_u${this.#turn}`;
    const spoken = this.#loud - SPEECH_FRAMES;
    if (loud && spoken === 0) {
      this.send({ type: 'input_audio_buffer.speech_started', item_id, audio_start_ms: 0 });
      this.send({ type: 'duolog.state', state: 'hearing' });
    }
    if (loud && spoken > 0 && spoken % 12 === 0 && words[spoken / 12 - 1]) {
      const type = 'conversation.item.input_audio_transcription.delta';
      this.send({ type, item_id, content_index: 0, delta: words[spoken / 12 - 1] });
    }
    if (this.#quiet === QUIET_FRAMES && this.#loud >= SPEECH_FRAMES) this.#turnEnded(item_id);
    if (this.#quiet >= QUIET_FRAMES) this.#loud = 0;
  }

  /** @param {string} item_id */
  #turnEnded(item_id) {
    this.send({ type: 'duolog.state', state: 'thinking' });
    this.send({
      type: 'conversation.item.input_audio_transcription.completed', item_id, content_index: 0, transcript: QUESTION,
    });
    this.#turn += 1;
    setTimeout(() => {
      if (this.#socket.readyState === this.#socket.OPEN) this.answer(ANSWER, this.#answerSeconds, item_id);
    }, 15 * FRAME_MS);
  }

  /** @param {WireMessage} message */
  #message(message) {
    this.messages.push(message);
    if (message.type === 'duolog.ping') this.send({ type: 'duolog.pong', client_time_ms: message['client_time_ms'] });
    if (message.type === 'response.cancel') this.flush();
    if (message.type === 'conversation.item.create') {
      this.send({ type: 'conversation.item.added', item: { id: `item_t${this.messages.length}`, .../** @type {object} */ (message['item']) } });
    }
    if (message.type === 'response.create') this.answer(ANSWER, this.#answerSeconds, null);
    if (message.type === 'duolog.playout.report') this.#heard(message);
  }

  /** @param {WireMessage} report */
  #heard(report) {
    const answer = this.#answers.get(Number(report['generation']));
    if (!answer) return;
    const played = Number(report['played_samples']) / (answer.seconds * OUTPUT_RATE_HZ);
    const words = answer.text.split(' ');
    const heard_text = words.slice(0, Math.floor(words.length * played)).join(' ');
    const item_id = `item_a${report['generation']}`;
    this.send({ type: 'duolog.playout.heard', item_id, heard_text, played_ms: 0, approximate: false });
  }
}

/** @param {import('ws').WebSocket} client */
function refuseKey(client) {
  const error = { type: 'invalid_request_error', code: 'invalid_api_key', message: 'The API key is missing or wrong.' };
  client.send(JSON.stringify({ type: 'error', event_id: 'event_1', error }));
  client.close(1008);
}

export class FakeServer {
  /** @type {FakeCall[]} */ calls = [];
  /** @type {FakeOptions} */ options;
  #http = createServer((request, response) => void this.#serve(request, response));
  #sockets = new WebSocketServer({ noServer: true, handleProtocols: () => 'realtime' });

  /** @param {FakeOptions} [options] */
  constructor(options = {}) {
    this.options = options;
    this.#http.on('upgrade', (request, socket, head) => {
      const offered = request.headers['sec-websocket-protocol'] ?? '';
      if (this.options.key && !offered.includes(`openai-insecure-api-key.${this.options.key}`)) {
        this.#sockets.handleUpgrade(request, socket, head, refuseKey);
        return;
      }
      this.#sockets.handleUpgrade(request, socket, head, (client) => this.#called(client, request.url ?? '/'));
    });
  }

  /** @returns {Promise<string>} the page's address */
  async start() {
    const { port = 0 } = this.options;
    await new Promise((resolve) => this.#http.listen(port, '127.0.0.1', () => resolve(undefined)));
    return `http://127.0.0.1:${this.port}/`;
  }

  get port() {
    const address = this.#http.address();
    return address !== null && typeof address === 'object' ? address.port : 0;
  }

  async stop() {
    for (const client of this.#sockets.clients) client.terminate();
    this.#http.closeAllConnections();
    await new Promise((resolve) => this.#http.close(resolve));
  }

  /**
   * @param {import('ws').WebSocket} client
   * @param {string} path
   */
  #called(client, path) {
    const call = new FakeCall(client, new URL(path, 'http://127.0.0.1'), this.options.answerSeconds ?? 3);
    if (this.options.full) {
      const message = 'All 4 lines are in use. Try again in 30 s.';
      const error = { type: 'server_error', code: 'session_limit_reached', message, retry_after_s: 30 };
      call.send({ type: 'error', error });
      client.close(1013);
      return;
    }
    this.calls.push(call);
    call.begin();
  }

  /**
   * @param {import('node:http').IncomingMessage} request
   * @param {import('node:http').ServerResponse} response
   */
  async #serve(request, response) {
    const path = new URL(request.url ?? '/', 'http://127.0.0.1').pathname;
    const json = (/** @type {number} */ status, /** @type {unknown} */ body) => {
      response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
    };
    if (path === '/readyz') {
      const parts = this.options.parts ?? {};
      const ready = Object.values(parts).every((part) => part.ready);
      json(ready ? 200 : 503, { ready, parts });
    } else if (path.startsWith('/v1/') && this.options.key && request.headers.authorization !== `Bearer ${this.options.key}`) {
      json(401, { error: { code: 'invalid_api_key', message: 'The key is missing or wrong.' } });
    } else if (path === '/v1/personas' && this.options.withoutPersonas) request.socket.destroy();
    else if (path === '/v1/personas') json(200, { personas: PERSONAS, default: 'ava' });
    else if (path === '/v1/realtime') json(426, { error: { code: 'upgrade_required', message: '' } });
    else await this.#file(path, response);
  }

  /**
   * @param {string} path
   * @param {import('node:http').ServerResponse} response
   */
  async #file(path, response) {
    const file = normalize(path === '/' ? 'index.html' : path.slice(1));
    const type = TYPES.get(extname(file));
    const bytes = type && !file.startsWith('..') ? await readFile(join(WEB_ROOT, file)).catch(() => null) : null;
    const headers = { 'Content-Type': type ?? 'text/plain', 'Content-Security-Policy': POLICY };
    response.writeHead(bytes ? 200 : 404, headers).end(bytes);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const address = await new FakeServer({ port: Number(process.argv[2] ?? 8123) }).start();
  process.stdout.write(`The page with canned answers: ${address}\n`);
}
