/** A call as one JSON value: what the export holds and what tests read. Pure. */

import { summarize } from './percentiles.js';
import { stageBars } from './waterfall.js';

/** @typedef {{ sentFrames: number, droppedFrames: number }} MicrophoneCounts dropped: the line was clogged */

/**
 * @typedef {object} PlayoutCounts
 * @property {number} receivedFrames
 * @property {number} staleFrames of flushed generations, dropped
 * @property {number} underruns times the loudspeaker ran dry within a generation
 * @property {number} reports
 * @property {number} energy sum of the squares of all samples rendered, full scale being 1: 0 is silence
 * @property {Record<string, number>} played samples rendered, by generation
 */

/**
 * @typedef {object} CallSources
 * @property {import('./call-state.js').CallState} state
 * @property {import('./turn-log.js').TurnLog} log
 * @property {number[]} roundTrips
 * @property {{ microphone: MicrophoneCounts, playout: PlayoutCounts }} counts
 * @property {string} persona
 * @property {number | null} contextRateHz
 */

/** @param {CallSources} call */
export function callRecord({ state, log, roundTrips, counts, persona, contextRateHz }) {
  const { phase, activity, sessionId, resumed, fault, lines, muted, pushToTalk, microphone, playing } = state;
  return {
    format: 'duolog-call-1',
    persona, sessionId, resumed, phase, activity, playing, microphone, muted, pushToTalk, contextRateHz,
    fault: fault ?? null,
    warmingParts: state.warmingParts,
    turns: log.turns.map((turn) => ({ ...turn, bars: stageBars(turn) })),
    interruptions: log.interruptions,
    summary: { ...log.summary, roundTrip: summarize(roundTrips) },
    counts: structuredClone(counts),
    lines: lines.map((line) => ({ ...line, heardText: line.text.slice(0, line.heardLength) })),
  };
}
