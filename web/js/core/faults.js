/** What can go wrong with a call, as a person understands it, from what the browser and the server say. Pure. */

/**
 * @typedef {'unsupported' | 'insecure' | 'microphoneRefused' | 'microphoneMissing' | 'microphoneBusy'
 *   | 'microphoneLost' | 'warming' | 'full' | 'keyRefused' | 'gone' | 'refused' | 'expired' | 'audioInterrupted'
 *   | 'answerFailed'} FaultKind
 */

/**
 * @typedef {object} Fault
 * @property {FaultKind} kind
 * @property {string} [detail] the server's own sentence
 * @property {string} [code]
 * @property {number | null} [retryAfterS]
 */

/** @typedef {{ name: string, ready: boolean, detail: string }} ReadyPart */

const FULL_CODES = new Set([
  'session_limit_reached', 'server_overloaded', 'server_full', 'overloaded', 'too_many_calls', 'capacity', 'rate_limit_exceeded', 'insufficient_quota',
]);
const KEY_CODES = new Set(['invalid_api_key', 'missing_api_key', 'unauthorized', 'authentication_error']);
const WARMING_CODES = new Set(['not_ready', 'warming', 'warming_up']);
/** Answers to something that a person did a moment too late: nothing to tell. */
const HARMLESS_CODES = new Set([
  'response_cancel_not_active', 'conversation_already_has_active_response', 'input_audio_buffer_commit_empty',
  // The closing line that follows says it.
  'server_shutting_down',
]);
const POLICY_VIOLATION = 1008;
const TRY_AGAIN_LATER = 1013;

/**
 * @param {string} errorName name of the DOMException that `getUserMedia` threw
 * @returns {Fault}
 */
export function microphoneFault(errorName) {
  if (errorName === 'NotAllowedError' || errorName === 'SecurityError') return { kind: 'microphoneRefused' };
  if (errorName === 'NotReadableError' || errorName === 'AbortError') return { kind: 'microphoneBusy' };
  return { kind: 'microphoneMissing' };
}

/**
 * An `error` event of the server; null where it is nobody's concern.
 *
 * @param {{ code: string, message: string, retryAfterS: number | null }} error
 * @returns {Fault | null}
 */
export function errorFault({ code, message, retryAfterS }) {
  if (HARMLESS_CODES.has(code)) return null;
  if (FULL_CODES.has(code)) return { kind: 'full', detail: message, code, retryAfterS };
  if (KEY_CODES.has(code)) return { kind: 'keyRefused', detail: message, code };
  if (code === 'session_expired') return { kind: 'expired', detail: message, code };
  if (WARMING_CODES.has(code)) return { kind: 'warming', detail: message, code };
  return { kind: 'answerFailed', detail: message, code };
}

/**
 * An HTTP answer where a socket was wanted: how a server that refused the upgrade is asked for its reason. Null where
 * the status says nothing, as 400, 404 and 426 do: a plain request to a socket's address is no mistake of the user.
 *
 * @param {number} status
 * @param {string} message
 * @param {string} code
 * @param {number | null} retryAfterS
 * @returns {Fault | null}
 */
export function httpFault(status, message, code, retryAfterS) {
  if (status === 401) return { kind: 'keyRefused', detail: message, code };
  if (status === 403) return { kind: 'refused', detail: message, code };
  if (status === 429 || status === 503) {
    return { kind: WARMING_CODES.has(code) ? 'warming' : 'full', detail: message, code, retryAfterS };
  }
  return null;
}

/**
 * @param {number} closeCode
 * @param {string} reason
 * @returns {Fault | null} null where the line simply broke
 */
export function closeFault(closeCode, reason) {
  if (closeCode === TRY_AGAIN_LATER) return { kind: 'full', detail: reason };
  if (closeCode === POLICY_VIOLATION) return { kind: 'refused', detail: reason };
  return null;
}

/**
 * Whether the call cannot begin or go on with it.
 *
 * @param {Fault} fault
 */
export function endsCall(fault) {
  return ['full', 'keyRefused', 'refused', 'expired', 'unsupported', 'insecure'].includes(fault.kind);
}

/**
 * @param {unknown} body answer of `GET /readyz`
 * @returns {{ ready: boolean, parts: ReadyPart[] }}
 */
export function readiness(body) {
  if (body === null || typeof body !== 'object') return { ready: false, parts: [] };
  const parts = Reflect.get(body, 'parts');
  const entries = parts !== null && typeof parts === 'object' ? Object.entries(parts) : [];
  return {
    ready: Reflect.get(body, 'ready') === true,
    parts: entries.map(([name, part]) => ({
      name,
      ready: part?.ready === true,
      detail: typeof part?.detail === 'string' ? part.detail : '',
    })),
  };
}
