/** How long to wait before calling the server again. Pure: chance is handed in. */

const FIRST_MS = 500;
const LONGEST_MS = 15_000;
const JITTER = 0.3;

export const MAX_ATTEMPTS = 12;

/**
 * Doubling from half a second to 15 s, less up to 30 % so that a crowd does not come back at one moment.
 *
 * @param {number} attempt 1 for the first
 * @param {number} chance from 0 to 1
 * @param {number | null} [retryAfterS] what the server asked for; never less than that is waited
 * @returns {number | null} milliseconds; null: give up
 */
export function reconnectDelayMs(attempt, chance, retryAfterS = null) {
  if (attempt > MAX_ATTEMPTS) return null;
  const full = Math.min(LONGEST_MS, FIRST_MS * 2 ** (attempt - 1));
  return Math.max(Math.round(full * (1 - JITTER * chance)), (retryAfterS ?? 0) * 1000);
}
