/** One turn as an engineering drawing: a scale, one lane for each stage, and the dimension line of the whole. */

import { scaleFor, stageBars } from '../core/waterfall.js';
import { say } from '../i18n/words.js';
import { makeSvg } from './elements.js';

/** @typedef {import('../core/waterfall.js').TurnRecord} TurnRecord */
/** @typedef {import('../core/waterfall.js').Bar} Bar */
/** @typedef {import('../i18n/en.js').MessageKey} MessageKey */

const WIDTH = 400;
const LABEL_WIDTH = 92;
const RIGHT_MARGIN = 14;
const TOP = 18;
const LANE = 19;
const FOOT = 30;
const PLOT_WIDTH = WIDTH - LABEL_WIDTH - RIGHT_MARGIN;
/** Room that a figure beside a bar takes. */
const FIGURE_WIDTH = 34;

/**
 * @param {TurnRecord} turn
 * @param {number} longestMs the scale's end, the same for all turns that are compared
 * @returns {SVGElement}
 */
export function drawTurn(turn, longestMs) {
  const bars = stageBars(turn);
  const { stepMs, endMs } = scaleFor(longestMs);
  const x = (/** @type {number} */ ms) => LABEL_WIDTH + (Math.min(ms, endMs) / endMs) * PLOT_WIDTH;
  const bottom = TOP + bars.length * LANE;
  const label = say('turnSummary', { number: turn.number, ms: Math.round(turn.renderedMs ?? 0) });
  return makeSvg(
    'svg',
    { viewBox: `0 0 ${WIDTH} ${bottom + FOOT}`, role: 'img', 'aria-label': label, class: 'waterfall' },
    hatch(turn.number),
    ...grid(x, stepMs, endMs, bottom),
    ...bars.flatMap((bar, lane) => drawBar(bar, TOP + lane * LANE, x, turn)),
    ...dimension(turn.renderedMs, x, bottom),
  );
}

/** @param {number} number */
function hatch(number) {
  const line = makeSvg('path', { d: 'M0 6 6 0', class: 'hatch-line' });
  const attributes = { id: `hatch-${number}`, width: 6, height: 6, patternUnits: 'userSpaceOnUse' };
  return makeSvg('defs', {}, makeSvg('pattern', attributes, line));
}

/**
 * @param {(ms: number) => number} x
 * @param {number} stepMs
 * @param {number} endMs
 * @param {number} bottom
 */
function grid(x, stepMs, endMs, bottom) {
  const lines = [];
  for (let ms = 0; ms <= endMs; ms += stepMs) {
    lines.push(makeSvg('line', { x1: x(ms), x2: x(ms), y1: TOP - 4, y2: bottom + 4, class: ms ? 'grid' : 'grid zero' }));
    lines.push(text(x(ms), TOP - 8, String(ms), 'scale'));
  }
  return lines;
}

/**
 * @param {Bar} bar
 * @param {number} y
 * @param {(ms: number) => number} x
 * @param {TurnRecord} turn
 */
function drawBar(bar, y, x, turn) {
  const from = x(bar.fromMs);
  const width = Math.max(1.5, x(bar.toMs) - from);
  const name = `stage${bar.stage[0].toUpperCase()}${bar.stage.slice(1)}`;
  const parts = [text(LABEL_WIDTH - 10, y + 12.5, say(/** @type {MessageKey} */ (name)), 'lane')];
  parts.push(makeSvg('rect', { x: from, y: y + 4, width, height: LANE - 9, class: `bar bar-${bar.stage}` }));
  const waitMs = turn.server?.silenceWaitMs ?? 0;
  if (bar.stage === 'endpoint' && waitMs > 0) {
    const start = x(Math.max(0, bar.toMs - waitMs));
    const fill = `url(#hatch-${turn.number})`;
    parts.push(makeSvg('rect', { x: start, y: y + 4, width: from + width - start, height: LANE - 9, fill }));
  }
  const outside = from + width + FIGURE_WIDTH < WIDTH;
  const figureX = outside ? from + width + 5 : from - 5;
  parts.push(text(figureX, y + 12.5, String(Math.round(bar.toMs - bar.fromMs)), outside ? 'value' : 'value before'));
  return parts;
}

/**
 * |←——— 812 ———→|
 *
 * @param {number | null} totalMs
 * @param {(ms: number) => number} x
 * @param {number} bottom
 */
function dimension(totalMs, x, bottom) {
  if (totalMs === null) return [];
  const y = bottom + 17;
  const [from, to] = [x(0), x(totalMs)];
  const label = `${Math.round(totalMs)} ms`;
  const gap = label.length * 3.6 + 8;
  const middle = (from + to) / 2;
  const arrows = `M${from + 5} ${y - 3} ${from} ${y} ${from + 5} ${y + 3} M${to - 5} ${y - 3} ${to} ${y} ${to - 5} ${y + 3}`;
  const ends = `M${from} ${bottom + 6}V${y + 6} M${to} ${bottom + 6}V${y + 6}`;
  const shaft = `M${from} ${y}H${middle - gap} M${middle + gap} ${y}H${to}`;
  return [
    makeSvg('path', { d: `${ends} ${shaft} ${arrows}`, class: 'dimension' }),
    text(middle, y + 4, label, 'total'),
  ];
}

/**
 * @param {number} x
 * @param {number} y
 * @param {string} content
 * @param {string} className
 */
function text(x, y, content, className) {
  return makeSvg('text', { x, y, class: className }, content);
}
