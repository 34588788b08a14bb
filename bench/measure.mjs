/** How things are measured: interleaved rounds, medians with their range, ratios within a round. */
import { spawn } from 'node:child_process';

const RUN_MS = 60_000;

/**
 * Runs all subjects in turn, round after round, so that whatever else the machine does meets all of
 * them alike. The round before the first is the warm-up and counts for nothing.
 * @param subjects `{name, measure}`; `measure` gives one figure or throws when the subject did not run.
 * @returns samples by name, the n-th of each from the same round.
 */
export async function interleave(subjects, rounds, onRound = () => undefined) {
  const samples = Object.fromEntries(subjects.map(({ name }) => [name, []]));
  for (let round = 0; round <= rounds; round += 1) {
    for (const { name, measure } of subjects) {
      const figure = await measure();
      if (round > 0) samples[name].push(figure);
    }
    onRound(round);
  }
  return samples;
}

/** Median with its range. */
export function summarize(samples) {
  const sorted = [...samples].sort((a, b) => a - b);
  return { median: medianOf(sorted), min: sorted[0], max: sorted.at(-1) };
}

/** Summary of the ratios to the baseline, each taken within one round. */
export function compare(samples, baseline) {
  return summarize(samples.map((figure, round) => figure / baseline[round]));
}

function median(samples) {
  return medianOf([...samples].sort((a, b) => a - b));
}

function medianOf(sorted) {
  const middle = sorted.length / 2;
  return sorted.length % 2 === 1 ? sorted[Math.floor(middle)] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/**
 * Milliseconds from spawning a command to its end.
 * @throws Error when it does not exit with `code` or `accepts` says that its output is wrong.
 */
export async function timeRun(command, { cwd, env, input, code = 0, accepts = () => true }) {
  const startedAt = performance.now();
  const child = begin(command, { cwd, env });
  child.stdin.end(input);
  const ended = await child.ended;
  const took = performance.now() - startedAt;
  if (ended.code !== code || !accepts(ended.stdout, ended.stderr)) throw didNotRun(command, ended);
  return took;
}

/**
 * Milliseconds from spawning a command to its first byte of output; then its stdin is ended and its end awaited.
 * @throws Error when it says nothing or does not exit with 0.
 */
export async function timeFirstByte(command, { cwd, env, input }) {
  const startedAt = performance.now();
  const child = begin(command, { cwd, env });
  let took;
  child.stdout.once('data', () => {
    took = performance.now() - startedAt;
    child.stdin.end();
  });
  if (input !== undefined) child.stdin.write(input);
  const ended = await child.ended;
  if (took === undefined || ended.code !== 0) throw didNotRun(command, ended);
  return took;
}

/** Milliseconds of one round trip, as the median of `count` made one after the other. */
export async function timeRoundTrips(roundTrip, count) {
  const samples = [];
  for (let at = 0; at < count; at += 1) {
    const startedAt = performance.now();
    await roundTrip(at);
    samples.push(performance.now() - startedAt);
  }
  return median(samples);
}

function begin([command, ...args], { cwd, env }) {
  const child = spawn(command, args, { cwd, env, stdio: 'pipe', timeout: RUN_MS, killSignal: 'SIGKILL' });
  let stdout = '';
  let stderr = '';
  child.stdin.on('error', () => undefined);
  child.stdout.on('data', (chunk) => {
    stdout += chunk;
  });
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  child.ended = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
  return child;
}

function didNotRun(command, { code, signal, stdout, stderr }) {
  return new Error(`did not run as it should: ${command.join(' ')}\n  exit ${signal ?? code}, said: ${stdout}${stderr}`);
}
