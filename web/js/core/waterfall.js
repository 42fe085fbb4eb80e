/**
 * One turn as a waterfall. Pure.
 *
 * Server marks are milliseconds after the last voiced sample was received; the client's are after it was captured. What
 * lies between the two clocks is the network, both ways, and is drawn as one bar at the end.
 */

/**
 * @typedef {object} TurnTimings `duolog.turn.timings`
 * @property {number} generation
 * @property {string} itemId
 * @property {number} speechEndSample
 * @property {number | null} endpointMs
 * @property {number | null} transcriptMs
 * @property {number | null} admittedMs
 * @property {number | null} firstTokenMs
 * @property {number | null} firstPhraseMs
 * @property {number | null} firstAudioMs
 * @property {number | null} firstAudioSentMs
 * @property {number} promptTokens
 * @property {number} cachedTokens
 * @property {number} silenceWaitMs
 * @property {string | null} speculation
 * @property {number} wastedSpeculations
 */

/**
 * @typedef {object} TurnRecord one turn, as far as it is known
 * @property {number} number counts from 1
 * @property {number} generation
 * @property {TurnTimings | null} server
 * @property {number | null} receivedMs first speech frame at the page, after the capture of the last voiced sample
 * @property {number | null} renderedMs first speech sample rendered, likewise
 * @property {number | null} outputLatencyMs from rendered to the loudspeaker, as the browser says
 */

/**
 * @typedef {'endpoint' | 'transcript' | 'queue' | 'firstToken' | 'firstPhrase' | 'synthesis' | 'release' | 'network'
 *   | 'audible'} StageName
 */

/**
 * @typedef {object} Bar
 * @property {StageName} stage
 * @property {number} fromMs
 * @property {number} toMs
 */

/** @type {StageName[]} */
export const STAGES = [
  'endpoint', 'transcript', 'queue', 'firstToken', 'firstPhrase', 'synthesis', 'release', 'network', 'audible',
];

/**
 * The stages that are known, in order. With speculation the answer is made while the end of the turn is still awaited:
 * bars then begin before the endpoint, and `release` is how long the finished answer was held back.
 *
 * @param {TurnRecord} turn
 * @returns {Bar[]}
 */
export function stageBars(turn) {
  const bars = turn.server ? serverBars(turn.server) : [];
  return bars.concat(clientBars(turn));
}

/**
 * @param {TurnTimings} server
 * @returns {Bar[]}
 */
function serverBars(server) {
  /** @type {[StageName, number | null][]} */
  const chain = [
    ['transcript', server.transcriptMs],
    ['queue', server.admittedMs],
    ['firstToken', server.firstTokenMs],
    ['firstPhrase', server.firstPhraseMs],
    ['synthesis', server.firstAudioMs],
    ['release', server.firstAudioSentMs],
  ];
  const { endpointMs, transcriptMs } = server;
  /** @type {Bar[]} */
  const bars = endpointMs === null ? [] : [{ stage: 'endpoint', fromMs: 0, toMs: endpointMs }];
  const early = endpointMs === null || transcriptMs === null || transcriptMs < endpointMs;
  let from = early ? 0 : endpointMs;
  for (const [stage, mark] of chain) {
    if (mark === null) continue;
    bars.push({ stage, fromMs: Math.min(from, mark), toMs: mark });
    from = mark;
  }
  return bars;
}

/**
 * @param {TurnRecord} turn
 * @returns {Bar[]}
 */
function clientBars({ server, receivedMs, renderedMs }) {
  /** @type {Bar[]} */
  const bars = [];
  const sentMs = server?.firstAudioSentMs ?? null;
  if (receivedMs !== null && sentMs !== null) {
    bars.push({ stage: 'network', fromMs: Math.min(sentMs, receivedMs), toMs: receivedMs });
  }
  if (renderedMs !== null) {
    const from = receivedMs ?? sentMs ?? renderedMs;
    bars.push({ stage: 'audible', fromMs: Math.min(from, renderedMs), toMs: renderedMs });
  }
  return bars;
}

/**
 * Round steps for the scale: about six gridlines, at 1, 2 or 5 times a power of ten.
 *
 * @param {number} longestMs
 * @returns {{ endMs: number, stepMs: number }}
 */
export function scaleFor(longestMs) {
  const rough = Math.max(1, longestMs) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const stepMs = ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  return { stepMs, endMs: Math.ceil(longestMs / stepMs) * stepMs || stepMs };
}
