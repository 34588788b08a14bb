/**
 * Measures what the broker costs, beside `node -e 0` or the same server without it. Run by `npm run bench`.
 * It never fails for being slow, only when something did not run or was left behind.
 */
import { loadavg } from 'node:os';
import { relative } from 'node:path';
import { parseArgs } from 'node:util';
import { fail } from '../scripts/sandbox.mjs';
import { measureFootprint } from './footprint.mjs';
import { describeRun, renderJson, renderTable, writeResult } from './report.mjs';
import { measureColdStart, measureHook, measureRoundTrips, measureWarm } from './subjects.mjs';

const FULL = { rounds: 11, requests: 200, brokers: 3, idleMs: 60_000 };
const QUICK = { rounds: 3, requests: 100, brokers: 1, idleMs: 10_000 };

const GROUPS = [measureColdStart, measureWarm, measureHook, measureRoundTrips, measureFootprint];

try {
  await run();
} catch (error) {
  fail(`bench: ${error.message}`);
}

async function run() {
  const { options, isJson } = readOptions();
  const startedAt = new Date();
  const [loadBefore] = loadavg();
  const rows = [];
  for (const measure of GROUPS) rows.push(...(await measure({ ...options, progress })));
  const result = describeRun({ rows, options, startedAt, loadBefore });
  const file = writeResult(result);
  process.stdout.write(isJson ? renderJson(result) : renderTable(result));
  process.stderr.write(`written to ${relative(process.cwd(), file)}\n`);
}

function readOptions() {
  const { values } = parseArgs({
    options: { rounds: { type: 'string' }, quick: { type: 'boolean' }, json: { type: 'boolean' } },
  });
  const base = values.quick ? QUICK : FULL;
  const rounds = values.rounds === undefined ? base.rounds : Number(values.rounds);
  if (!Number.isSafeInteger(rounds) || rounds < 1) throw new Error(`--rounds ${values.rounds} is not a whole number from 1`);
  return { options: { ...base, rounds }, isJson: values.json ?? false };
}

/** Says on a terminal how far a group is; the figures alone go to stdout. */
function progress(group) {
  return (round) => {
    if (process.stderr.isTTY) process.stderr.write(`\r\u001b[K${group}: ${round}\r`);
  };
}
