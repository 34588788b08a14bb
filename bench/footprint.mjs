/** What an idle broker costs: memory as the kernel counts it, and CPU time. Linux only. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { withSandbox } from '../scripts/sandbox.mjs';
import { summarize } from './measure.mjs';
import { KEPT, settled, settledClient } from './subjects.mjs';

const CLIENTS = 20;
const MIB_IN_KB = 1024;
/** What a broker does right after a client left is over by then. */
const SETTLE_MS = 3_000;
/** The kernel counts CPU time for user space in hundredths of a second, whatever it uses itself. */
const TICK_MS = 10;
const MINUTE_MS = 60_000;

const TARGETS = { rss: 50, private: 12, cpu: 60 };

export async function measureFootprint({ brokers, idleMs, progress }) {
  if (process.platform !== 'linux') return [];
  const said = progress('memory and idle CPU');
  const figures = [];
  for (let at = 1; at <= brokers; at += 1) {
    figures.push(await measureOneBroker(at === brokers ? idleMs : 0));
    said(at);
  }
  const cpu = figures.flatMap(({ cpuMsPerMinute }) => cpuMsPerMinute ?? []);
  return [
    ...memoryRows(
      'idle broker, fresh',
      figures.map(({ fresh }) => fresh),
    ),
    ...memoryRows(
      `idle broker, after ${CLIENTS} clients`,
      figures.map(({ used }) => used),
    ),
    row(`idle broker, CPU over ${idleMs / 1000} s`, 'ms/min', cpu, TARGETS.cpu),
  ];
}

function measureOneBroker(idleMs) {
  return withSandbox(KEPT, async (sandbox) => {
    // Text that other node processes map too is not the broker's own; on a machine of its users there are some.
    sandbox.start([process.execPath, '-e', 'setInterval(() => {}, 1e9)']);
    const cwd = sandbox.makeDirectory('work');
    await (await settledClient(sandbox, cwd)).leave();
    const pid = await idleBroker(sandbox);
    const fresh = memoryOf(pid);
    for (let at = 1; at < CLIENTS; at += 1) await (await settledClient(sandbox, cwd)).leave();
    if ((await idleBroker(sandbox)) !== pid) throw new Error('the broker was replaced while it was measured');
    const used = memoryOf(pid);
    return { fresh, used, ...(idleMs > 0 && { cpuMsPerMinute: await cpuMsPerMinute(pid, idleMs) }) };
  });
}

/** Pid of the only broker, once nobody needs it and nothing goes on around it. */
async function idleBroker(sandbox) {
  await settled(sandbox);
  await sleep(SETTLE_MS);
  const entries = await sandbox.list();
  const [entry] = entries;
  if (entries.length !== 1 || entry.clients !== 0 || entry.upstreams.length !== 0)
    throw new Error(`there is not one idle broker: ${JSON.stringify(entries)}`);
  return entry.pid;
}

async function cpuMsPerMinute(pid, idleMs) {
  const before = cpuMsOf(pid);
  const startedAt = performance.now();
  await sleep(idleMs);
  const used = cpuMsOf(pid) - before;
  return (used * MINUTE_MS) / (performance.now() - startedAt);
}

function memoryOf(pid) {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
  const sum = (pattern) => [...text.matchAll(pattern)].reduce((total, [, kb]) => total + Number(kb), 0) / MIB_IN_KB;
  return { rss: sum(/^Rss:\s+(\d+) kB/gm), private: sum(/^Private_(?:Clean|Dirty):\s+(\d+) kB/gm) };
}

function cpuMsOf(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const [userTicks, systemTicks] = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 13);
  return (Number(userTicks) + Number(systemTicks)) * TICK_MS;
}

function memoryRows(name, figures) {
  return [
    row(
      `${name}, RSS`,
      'MB',
      figures.map(({ rss }) => rss),
      TARGETS.rss,
    ),
    row(
      `${name}, private`,
      'MB',
      figures.map((figure) => figure.private),
      TARGETS.private,
    ),
  ];
}

function row(name, unit, samples, target) {
  return { name, unit, value: summarize(samples), samples, target };
}
