/** What the page and the playback worklet tell each other. Types only. */

/**
 * @typedef {{ kind: 'begin', generation: number, rateHz: number }
 *   | { kind: 'samples', generation: number, startSample: number, pcm: Int16Array }
 *   | { kind: 'end', generation: number } | { kind: 'flush', floor: number } | { kind: 'reset' }
 *   | { kind: 'duck', ducked: boolean }} PlaybackCommand
 */

/**
 * @typedef {object} PlaybackNotice
 * @property {'started' | 'ended' | 'flushed' | 'underrun'} kind
 * @property {number} generation
 * @property {number} playedSamples rendered since the generation began, at the speech's rate
 * @property {number} atS the context's time at which it happened
 */

/**
 * @typedef {PlaybackNotice
 *   | { kind: 'progress', generation: number, playedSamples: number, underruns: number, staleFrames: number }
 *   | { kind: 'level', level: number, energy: number }} PlaybackNews
 */

export {};
