/**
 * The instrument: one line, the call's ring in its middle, the user's voice running out to the left and the answer's
 * to the right. Drawn from levels alone; with reduced motion it stands still and only its length tells the level.
 */

import { meterFromRms } from '../core/pcm.js';

const STEP_PX = 6;
const GAP_PX = 20;
const TICKS_PER_LABEL = 5;
const ATTACK = 0.75;
const RELEASE = 0.28;
const STEP_EVERY_MS = 50;
const DRAW_EVERY_MS = 30;

/** @typedef {{ user: number, assistant: number }} Levels */

/**
 * @typedef {object} Colours
 * @property {string} ink
 * @property {string} user
 * @property {string} assistant
 */

export class VoiceLine {
  /** @type {HTMLCanvasElement} */ #canvas;
  /** @type {CanvasRenderingContext2D} */ #pen;
  /** @type {() => { levels: Levels, mood: string, live: boolean }} */ #read;
  /** @type {Colours} */ #colours = { ink: '#000', user: '#00f', assistant: '#f80' };
  /** @type {number[]} newest first */ #userTrail = [];
  /** @type {number[]} */ #assistantTrail = [];
  #user = 0;
  #assistant = 0;
  #radius = 0;
  /** The ruler never changes: it is drawn once. */
  #ruler = document.createElement('canvas');
  #drawnAtMs = 0;
  #steppedAtMs = 0;
  #still = window.matchMedia('(prefers-reduced-motion: reduce)');

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {() => { levels: Levels, mood: string, live: boolean }} read
   */
  constructor(canvas, read) {
    const pen = canvas.getContext('2d');
    if (!pen) throw new TypeError('This browser draws no canvas.');
    this.#canvas = canvas;
    this.#pen = pen;
    this.#read = read;
    new ResizeObserver(() => this.#fit()).observe(canvas);
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#fit());
    this.#fit();
    requestAnimationFrame(() => this.#draw());
  }

  /** Smoothed, 0 to 1: what the needles show. */
  get needles() {
    return { user: this.#user, assistant: this.#assistant };
  }

  #fit() {
    const scale = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.#canvas;
    this.#canvas.width = Math.round(clientWidth * scale);
    this.#canvas.height = Math.round(clientHeight * scale);
    this.#pen.setTransform(scale, 0, 0, scale, 0, 0);
    const style = getComputedStyle(this.#canvas);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    this.#colours = { ink: colour('--ink'), user: colour('--user'), assistant: colour('--bot') };
    this.#radius = Number.parseFloat(colour('--orb-radius'));
    this.#drawRuler(scale);
  }

  #draw() {
    requestAnimationFrame(() => this.#draw());
    const nowMs = performance.now();
    if (nowMs - this.#drawnAtMs < DRAW_EVERY_MS) return;
    this.#drawnAtMs = nowMs;
    const { levels, mood, live } = this.#read();
    this.#user = follow(this.#user, meterFromRms(levels.user));
    this.#assistant = follow(this.#assistant, meterFromRms(levels.assistant));
    if (nowMs - this.#steppedAtMs >= STEP_EVERY_MS) {
      this.#steppedAtMs = nowMs;
      this.#remember();
    }
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    this.#pen.clearRect(0, 0, width, height);
    this.#pen.globalAlpha = 1;
    this.#pen.drawImage(this.#ruler, 0, 0, width, height);
    this.#side(-1, width, height, this.#userTrail, this.#colours.user);
    this.#side(1, width, height, this.#assistantTrail, this.#colours.assistant);
    this.#ring(width / 2, height / 2, this.#radius, mood, live);
  }

  #remember() {
    const kept = Math.ceil(this.#canvas.clientWidth / STEP_PX);
    const push = (/** @type {number[]} */ trail, /** @type {number} */ level) => {
      if (this.#still.matches) trail.fill(level);
      if (trail.unshift(level) > kept) trail.pop();
    };
    push(this.#userTrail, this.#user);
    push(this.#assistantTrail, this.#assistant);
  }

  /** @param {number} scale */
  #drawRuler(scale) {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    this.#ruler.width = this.#canvas.width;
    this.#ruler.height = this.#canvas.height;
    const pen = this.#ruler.getContext('2d');
    if (!pen) return;
    pen.scale(scale, scale);
    const count = this.#stepCount(width);
    for (let i = 0; i < count; i += 1) {
      const half = i % TICKS_PER_LABEL === 0 ? 5 : 2.5;
      const alpha = 0.1 + 0.2 * (1 - i / count);
      for (const x of [this.#x(-1, i, width), this.#x(1, i, width)]) {
        stroke(pen, x, height / 2, half, this.#colours.ink, alpha, 1);
      }
    }
  }

  /** @param {number} width */
  #stepCount(width) {
    return Math.max(0, Math.floor((width / 2 - this.#radius - GAP_PX) / STEP_PX));
  }

  /**
   * @param {-1 | 1} direction
   * @param {number} step
   * @param {number} width
   */
  #x(direction, step, width) {
    return width / 2 + direction * (this.#radius + GAP_PX + step * STEP_PX);
  }

  /**
   * @param {-1 | 1} direction
   * @param {number} width
   * @param {number} height
   * @param {number[]} trail
   * @param {string} colour
   */
  #side(direction, width, height, trail, colour) {
    const count = this.#stepCount(width);
    for (let i = 0; i < count; i += 1) {
      const level = this.#still.matches ? stillLevel(trail[0] ?? 0, i, count) : (trail[i] ?? 0);
      const near = 1 - i / count;
      const half = level * (height / 2 - 6) * (0.35 + 0.65 * near);
      if (half > 1.2) stroke(this.#pen, this.#x(direction, i, width), height / 2, half, colour, 0.25 + 0.75 * near, 2.4);
    }
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} radius
   * @param {string} mood
   * @param {boolean} live
   */
  #ring(x, y, radius, mood, live) {
    const breath = this.#still.matches ? 0.5 : 0.5 + 0.5 * Math.sin(performance.now() / 900);
    const waiting = live ? 0.5 : 0.28;
    const userAlpha = mood === 'hearing' ? 1 : mood === 'listening' ? 0.45 + 0.35 * breath : waiting;
    const assistantAlpha = mood === 'speaking' ? 1 : waiting;
    const gap = 0.045;
    this.#arc(x, y, radius, Math.PI / 2 + gap, Math.PI * 1.5 - gap, this.#colours.user, userAlpha, this.#user);
    this.#arc(x, y, radius, -Math.PI / 2 + gap, Math.PI / 2 - gap, this.#colours.assistant, assistantAlpha, this.#assistant);
    if (mood === 'thinking') this.#crossing(x, y, radius);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} radius
   * @param {number} from
   * @param {number} to
   * @param {string} colour
   * @param {number} alpha
   * @param {number} level
   */
  #arc(x, y, radius, from, to, colour, alpha, level) {
    const pen = this.#pen;
    pen.globalAlpha = alpha;
    pen.strokeStyle = colour;
    pen.lineWidth = 2 + 7 * level;
    pen.lineCap = 'butt';
    pen.beginPath();
    pen.arc(x, y, radius + pen.lineWidth / 2, from, to);
    pen.stroke();
  }

  /**
   * A thought on its way from the user's side over the top to the other.
   *
   * @param {number} x
   * @param {number} y
   * @param {number} radius
   */
  #crossing(x, y, radius) {
    const pen = this.#pen;
    const progress = this.#still.matches ? 0.5 : (performance.now() / 1100) % 1;
    for (let i = 0; i < 5; i += 1) {
      const angle = Math.PI + Math.PI * (progress - i * 0.045);
      if (angle < Math.PI) continue;
      pen.globalAlpha = 0.9 - i * 0.17;
      pen.fillStyle = this.#colours.ink;
      pen.beginPath();
      pen.arc(x + Math.cos(angle) * (radius + 12), y + Math.sin(angle) * (radius + 12), 3.4 - i * 0.5, 0, 2 * Math.PI);
      pen.fill();
    }
  }
}

/**
 * @param {number} now
 * @param {number} target
 */
function follow(now, target) {
  return now + (target - now) * (target > now ? ATTACK : RELEASE);
}

/**
 * @param {number} level
 * @param {number} index
 * @param {number} count
 */
function stillLevel(level, index, count) {
  return index < level * count ? 0.25 : 0;
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {number} half
 * @param {string} colour
 * @param {number} alpha
 * @param {number} thickness
 */
function stroke(pen, x, y, half, colour, alpha, thickness) {
  pen.globalAlpha = alpha;
  pen.strokeStyle = colour;
  pen.lineWidth = thickness;
  pen.lineCap = thickness > 1 ? 'round' : 'butt';
  pen.beginPath();
  pen.moveTo(x, y - half);
  pen.lineTo(x, y + half);
  pen.stroke();
}
