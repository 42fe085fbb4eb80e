/** The latency overlay: the call's percentiles, then each turn as a drawing, newest first. */

import { STAGES } from '../core/waterfall.js';
import { summarize } from '../core/percentiles.js';
import { say } from '../i18n/words.js';
import { byId, make } from './elements.js';
import { drawTurn } from './waterfall-drawing.js';

/** @typedef {import('../core/percentiles.js').Summary} Summary */
/** @typedef {import('../core/turn-log.js').TurnLog} TurnLog */
/** @typedef {import('../core/waterfall.js').TurnRecord} TurnRecord */
/** @typedef {import('../i18n/en.js').MessageKey} MessageKey */

const MOST_DRAWN = 30;

export class OverlayView {
  #aside = byId('overlay', HTMLElement);
  #body = byId('overlay-body', HTMLElement);
  #toggle = byId('overlay-toggle', HTMLButtonElement);
  #figure = byId('latency-figure', HTMLElement);
  #shown = '';
  /** @type {() => void} */ #onOpen;

  /**
   * @param {() => void} onExport
   * @param {() => void} onOpen it wants to be shown anew
   */
  constructor(onExport, onOpen) {
    this.#onOpen = onOpen;
    this.#toggle.onclick = () => this.open(this.#aside.hidden);
    byId('overlay-close', HTMLButtonElement).onclick = () => this.open(false);
    byId('export', HTMLButtonElement).onclick = onExport;
  }

  get isOpen() {
    return !this.#aside.hidden;
  }

  get holdsFocus() {
    return this.isOpen && this.#aside.contains(document.activeElement);
  }

  /** @param {boolean} open */
  open(open) {
    this.#aside.hidden = !open;
    this.#toggle.ariaExpanded = String(open);
    document.body.dataset['overlay'] = open ? 'open' : 'closed';
    (open ? byId('overlay-close', HTMLButtonElement) : this.#toggle).focus();
    this.#shown = '';
    this.#onOpen();
  }

  /**
   * @param {TurnLog} log
   * @param {number[]} roundTrips
   */
  show(log, roundTrips) {
    const { turns, summary } = log;
    const latest = turns.at(-1)?.renderedMs ?? null;
    this.#figure.textContent = latest === null ? '' : `${Math.round(latest)} ms`;
    const shown = JSON.stringify([turns, summary, roundTrips.length, say('close')]);
    if (this.#aside.hidden || shown === this.#shown) return;
    this.#shown = shown;
    if (turns.length === 0) {
      this.#body.replaceChildren(make('p', 'overlay-empty', say('overlayEmpty')));
      return;
    }
    const longestMs = Math.max(...turns.map((turn) => turn.renderedMs ?? turn.server?.firstAudioSentMs ?? 0));
    this.#body.replaceChildren(
      headline(summary.voiceToVoice, summary.decisionToSilence, summarize(roundTrips)),
      ...turns.slice(-MOST_DRAWN).reverse().map((turn) => turnFigure(turn, longestMs)),
      stageTable(summary.stages, summary.voiceToVoice),
    );
  }
}

/**
 * @param {number | null} value
 */
function figure(value) {
  return value === null ? '–' : String(Math.round(value));
}

/**
 * @param {Summary} voiceToVoice
 * @param {Summary} silence
 * @param {Summary} roundTrip
 */
function headline(voiceToVoice, silence, roundTrip) {
  const big = make('p', 'headline-figure', figure(voiceToVoice.p50), make('span', 'unit', ' ms'));
  const main = make('div', 'headline-main', make('p', 'fine', `${say('voiceToVoice')}, ${say('median')}`), big);
  const facts = make('dl', 'headline-facts');
  const fact = (/** @type {string} */ name, /** @type {string} */ value) => {
    facts.append(make('div', '', make('dt', '', name), make('dd', '', value)));
  };
  fact('p90', `${figure(voiceToVoice.p90)} ms`);
  fact('p99', `${figure(voiceToVoice.p99)} ms`);
  fact(say('bargeIn'), silence.count ? `${figure(silence.p50)} ms ×${silence.count}` : '–');
  fact(say('roundTrip'), roundTrip.count ? `${roundTrip.p50?.toFixed(1)} ms` : '–');
  return make('div', 'headline', main, facts);
}

/**
 * @param {TurnRecord} turn
 * @param {number} longestMs
 */
function turnFigure(turn, longestMs) {
  const caption = make('figcaption', '', make('b', '', say('turn', { number: turn.number })));
  const notes = turnNotes(turn);
  if (notes.length > 0) caption.append(make('span', '', notes.join(' · ')));
  return make('figure', 'turn', caption, drawTurn(turn, longestMs));
}

/** @param {TurnRecord} turn */
function turnNotes({ server, outputLatencyMs }) {
  const notes = [];
  if (server && server.promptTokens > 0) {
    const { promptTokens: prompt, cachedTokens: cached } = server;
    notes.push(say('promptTokens', { prompt, cached, uncached: prompt - cached }));
  }
  if (server?.speculation === 'used') notes.push(say('speculationUsed'));
  if (server?.wastedSpeculations) notes.push(say('speculationWasted', { count: server.wastedSpeculations }));
  if (server && server.silenceWaitMs > 0) notes.push(say('silenceWait', { ms: server.silenceWaitMs }));
  if (outputLatencyMs !== null) notes.push(say('outputLatency', { ms: Math.round(outputLatencyMs) }));
  return notes;
}

/**
 * @param {Record<string, Summary>} stages
 * @param {Summary} whole
 */
function stageTable(stages, whole) {
  const row = (/** @type {string} */ name, /** @type {Summary} */ { p50, p90, p99 }) => {
    const label = make('th', '', name);
    label.scope = 'row';
    return make('tr', '', label, ...[p50, p90, p99].map((value) => make('td', '', figure(value))));
  };
  const titles = [say('stage'), 'p50', 'p90', 'p99'].map((title) => {
    const cell = make('th', '', title);
    cell.scope = 'col';
    return cell;
  });
  const rows = STAGES.filter((stage) => stages[stage].count > 0).map((stage) => {
    const key = /** @type {MessageKey} */ (`stage${stage[0].toUpperCase()}${stage.slice(1)}`);
    return row(say(key), stages[stage]);
  });
  const total = row(say('voiceToVoice'), whole);
  return make('table', 'stages', make('thead', '', make('tr', '', ...titles)), make('tbody', '', ...rows, total));
}
