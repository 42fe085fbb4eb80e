/** What an AudioWorkletGlobalScope offers; TypeScript's libraries do not describe it. */

interface WorkletPort {
  onmessage: ((event: { data: unknown }) => void) | null;
  postMessage(message: unknown, transfer?: ArrayBuffer[]): void;
}

declare abstract class AudioWorkletProcessor {
  constructor(options?: unknown);
  readonly port: WorkletPort;
  abstract process(inputs: Float32Array[][], outputs: Float32Array[][]): boolean;
}

declare function registerProcessor(name: string, processor: new () => AudioWorkletProcessor): void;

/** Rate of the audio context. */
declare const sampleRate: number;
/** Time of the first frame of the present block, in seconds. */
declare const currentTime: number;
