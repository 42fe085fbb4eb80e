/** The server's addresses, and what it says over plain HTTP. All paths are relative to the page. */

import { httpFault, readiness } from '../core/faults.js';
import { numberAt, personaList, textAt } from '../core/wire.js';

/** @typedef {import('../core/faults.js').Fault} Fault */

/**
 * @typedef {object} CallRequest
 * @property {string} persona empty for the server's default
 * @property {string | null} sessionId to go on with
 * @property {boolean} greeting
 */

/** @typedef {{ personas: import('../core/wire.js').Persona[], defaultId: string, keyRefused: boolean }} PersonaAnswer */

/** A server that takes longer for a list is as good as none. */
const LIST_WITHIN_MS = 10_000;

/**
 * @param {string} path
 * @returns {URL}
 */
function address(path) {
  return new URL(path, document.baseURI);
}

/**
 * @param {string} key empty where none is needed
 * @returns {Record<string, string>}
 */
function authorization(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/**
 * @param {CallRequest} request
 * @returns {URL}
 */
export function callUrl({ persona, sessionId, greeting }) {
  const url = address('v1/realtime');
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  url.hash = '';
  if (persona) url.searchParams.set('model', persona);
  url.searchParams.set('duolog', '1');
  if (sessionId) url.searchParams.set('session', sessionId);
  if (greeting && !sessionId) url.searchParams.set('greeting', '1');
  return url;
}

/**
 * A key is always offered, if only a made-up one: browsers hide the HTTP status of a refused upgrade, so the server tells
 * the reason over an opened socket to those that offered a key.
 *
 * @param {string} key
 * @returns {string[]}
 */
export function subprotocols(key) {
  return ['realtime', `openai-insecure-api-key.${key || 'none'}`];
}

/**
 * @param {string} key
 * @returns {Promise<PersonaAnswer | null>} null: nobody answers, or not with a list
 */
export async function fetchPersonas(key) {
  try {
    const signal = AbortSignal.timeout(LIST_WITHIN_MS);
    const response = await fetch(address('v1/personas'), { headers: authorization(key), cache: 'no-store', signal });
    if (response.status === 401 || response.status === 403) return { personas: [], defaultId: '', keyRefused: true };
    const list = personaList(response.ok ? await jsonOf(response) : null);
    return list.personas.length > 0 ? { ...list, keyRefused: false } : null;
  } catch (error) {
    if (error instanceof TypeError || (error instanceof DOMException && error.name === 'TimeoutError')) return null;
    throw error;
  }
}

/**
 * @returns {Promise<{ ready: boolean, parts: import('../core/faults.js').ReadyPart[] } | null>} null: nobody answers
 */
export async function fetchReadiness() {
  try {
    const response = await fetch(address('readyz'), { cache: 'no-store' });
    return readiness(await jsonOf(response));
  } catch (error) {
    if (error instanceof TypeError) return null;
    throw error;
  }
}

/**
 * Why the server would not open the socket: browsers hide it, so the same is asked over HTTP. Null where it has
 * nothing to say, or is not there.
 *
 * @param {CallRequest} request
 * @param {string} key
 * @returns {Promise<Fault | null>}
 */
export async function refusalReason(request, key) {
  const url = callUrl(request);
  url.protocol = url.protocol === 'wss:' ? 'https:' : 'http:';
  try {
    const response = await fetch(url, { headers: authorization(key), cache: 'no-store' });
    const body = await jsonOf(response);
    const retryAfterS = Number.parseFloat(response.headers.get('Retry-After') ?? '');
    return httpFault(
      response.status,
      textAt(body, 'error', 'message'),
      textAt(body, 'error', 'code'),
      Number.isFinite(retryAfterS) ? retryAfterS : numberAt(body, 'error', 'retry_after_s'),
    );
  } catch (error) {
    if (error instanceof TypeError) return null;
    throw error;
  }
}

/**
 * @param {Response} response
 * @returns {Promise<unknown>}
 */
async function jsonOf(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}
