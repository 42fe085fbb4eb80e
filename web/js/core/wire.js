/** The server's JSON events, read with care: a missing or odd field becomes a neutral value, never an exception. Pure. */

/** @typedef {{ type: string } & Record<string, unknown>} WireMessage */

/**
 * @param {string} text
 * @returns {WireMessage | null} null where it is no object with a `type`
 */
export function parseMessage(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === 'object' && typeof value.type === 'string' ? value : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error;
  }
}

/**
 * @param {unknown} value
 * @param {string} field
 * @returns {unknown}
 */
function field(value, field) {
  return value !== null && typeof value === 'object' ? Reflect.get(value, field) : undefined;
}

/**
 * @param {unknown} value
 * @param {...string} path
 * @returns {string} empty where there is none
 */
export function textAt(value, ...path) {
  const found = path.reduce(field, value);
  return typeof found === 'string' ? found : '';
}

/**
 * @param {unknown} value
 * @param {...string} path
 * @returns {number | null}
 */
export function numberAt(value, ...path) {
  const found = path.reduce(field, value);
  return typeof found === 'number' && Number.isFinite(found) ? found : null;
}

/**
 * @param {unknown} value
 * @param {...string} path
 * @returns {boolean}
 */
export function flagAt(value, ...path) {
  return path.reduce(field, value) === true;
}

/**
 * @param {unknown} value
 * @param {...string} path
 * @returns {unknown[]}
 */
export function listAt(value, ...path) {
  const found = path.reduce(field, value);
  return Array.isArray(found) ? found : [];
}

/**
 * @param {WireMessage} message `duolog.turn.timings`
 * @returns {import('./waterfall.js').TurnTimings}
 */
export function turnTimings(message) {
  return {
    generation: numberAt(message, 'generation') ?? 0,
    itemId: textAt(message, 'item_id'),
    speechEndSample: numberAt(message, 'speech_end_sample') ?? 0,
    endpointMs: numberAt(message, 'endpoint_ms'),
    transcriptMs: numberAt(message, 'transcript_ms'),
    admittedMs: numberAt(message, 'admitted_ms'),
    firstTokenMs: numberAt(message, 'first_token_ms'),
    firstPhraseMs: numberAt(message, 'first_phrase_ms'),
    firstAudioMs: numberAt(message, 'first_audio_ms'),
    firstAudioSentMs: numberAt(message, 'first_audio_sent_ms'),
    promptTokens: numberAt(message, 'prompt_tokens') ?? 0,
    cachedTokens: numberAt(message, 'cached_tokens') ?? 0,
    silenceWaitMs: numberAt(message, 'silence_wait_ms') ?? 0,
    speculation: textAt(message, 'speculation') || null,
    wastedSpeculations: numberAt(message, 'wasted_speculations') ?? 0,
  };
}

/**
 * @typedef {object} Persona
 * @property {string} id
 * @property {string} name
 * @property {string} description
 * @property {string[]} languages
 */

/**
 * @param {unknown} body answer of `GET /v1/personas`
 * @returns {{ personas: Persona[], defaultId: string }}
 */
export function personaList(body) {
  const personas = listAt(body, 'personas')
    .map((entry) => ({
      id: textAt(entry, 'id'),
      name: textAt(entry, 'name') || textAt(entry, 'id'),
      description: textAt(entry, 'description'),
      languages: listAt(entry, 'languages').filter((language) => typeof language === 'string'),
    }))
    .filter((persona) => persona.id !== '');
  return { personas, defaultId: textAt(body, 'default') || personas[0]?.id || '' };
}
