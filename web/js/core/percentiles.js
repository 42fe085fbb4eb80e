/** Percentiles of a call's few turns. Pure. */

/**
 * Linear interpolation between the nearest ranks; null without values.
 *
 * @param {number[]} values
 * @param {number} share 0 to 1
 * @returns {number | null}
 */
export function percentile(values, share) {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const rank = (sorted.length - 1) * share;
  const below = Math.floor(rank);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (rank - below);
}

/**
 * @typedef {object} Summary
 * @property {number} count
 * @property {number | null} p50
 * @property {number | null} p90
 * @property {number | null} p99
 */

/**
 * @param {(number | null | undefined)[]} values missing ones do not count
 * @returns {Summary}
 */
export function summarize(values) {
  const present = values.filter((value) => typeof value === 'number');
  return {
    count: present.length,
    p50: percentile(present, 0.5),
    p90: percentile(present, 0.9),
    p99: percentile(present, 0.99),
  };
}
