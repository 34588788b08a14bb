/** What is timed: each group sets up its world, runs its subjects interleaved, and gives back rows of figures. */
import { fileURLToPath } from 'node:url';
import { BROKER, MCP_SERVER, until, withSandbox } from '../scripts/sandbox.mjs';
import { McpClient } from '../scripts/stdio-client.mjs';
import { compare, interleave, summarize, timeFirstByte, timeRoundTrips, timeRun } from './measure.mjs';

const NODE = process.execPath;
const HELLO = [NODE, fileURLToPath(new URL('./hello.mjs', import.meta.url))];
const EMPTY = [NODE, '-e', '0'];
const ECHO = ['cat'];
const LINE = 'x\n';
const HOOK_INPUT = JSON.stringify({ session_id: 'bench', cwd: '/', hook_event_name: 'SessionStart', source: 'startup' });
const TOMBSTONES = 20;

/** Long enough that no broker leaves while it is measured. */
export const KEPT = { CWD_BROKER_GRACE_MS: '3600000' };

const broker = (...args) => [NODE, BROKER, ...args];
const connect = (...command) => broker('connect', '--', ...command);

/** From nothing to a broker that answers. Every round has a state dir of its own. */
export function measureColdStart({ rounds, progress }) {
  const baseline = 'node -e 0';
  const subjects = [
    { name: baseline, measure: () => withSandbox(KEPT, ({ env, dir }) => timeRun(EMPTY, { env, cwd: dir })) },
    {
      name: 'cold start to hello, library',
      measure: () => withSandbox(KEPT, ({ env, dir }) => timeFirstByte(HELLO, { env, cwd: dir })),
    },
    {
      name: 'cold start to first echo, connect',
      measure: () => withSandbox(KEPT, ({ env, dir }) => timeFirstByte(connect(...ECHO), { env, cwd: dir, input: LINE })),
    },
  ];
  return interleave(subjects, rounds, progress('cold start')).then((samples) => [
    absolute(baseline, samples[baseline]),
    ...subjects.slice(1).map(({ name }) => relative(name, samples, baseline, 3)),
  ]);
}

/** With a broker that runs, kept up by one client. */
export function measureWarm({ rounds, progress }) {
  return withSandbox(KEPT, async (sandbox) => {
    const busy = sandbox.makeDirectory('busy');
    const free = sandbox.makeDirectory('free');
    await settledClient(sandbox, busy);
    const { env } = sandbox;
    const subjects = [
      { name: 'node -e 0', measure: () => timeRun(EMPTY, { env, cwd: busy }) },
      { name: 'direct cat', measure: () => timeFirstByte(ECHO, { env, cwd: busy, input: LINE }) },
      { name: 'warm start to hello, library', measure: () => timeFirstByte(HELLO, { env, cwd: busy }) },
      { name: 'warm connect to first echo', measure: () => timeFirstByte(connect(...ECHO), { env, cwd: busy, input: LINE }) },
      { name: 'ls, one broker', measure: () => timeRun(broker('ls'), { env, cwd: free, accepts: (out) => out.includes(busy) }) },
      { name: 'check, free path', measure: () => timeRun(broker('check', free), { env, cwd: free }) },
      { name: 'check, busy path', measure: () => timeRun(broker('check', busy), { env, cwd: free, code: 1 }) },
      { name: 'hook session-start, one broker', measure: () => timeHook(sandbox) },
    ];
    const samples = await interleave(subjects, rounds, progress('warm'));
    return [
      relative('warm start to hello, library', samples, 'node -e 0'),
      relative('warm connect to first echo', samples, 'node -e 0'),
      relative('warm connect to first echo', samples, 'direct cat'),
      relative('ls, one broker', samples, 'node -e 0', 1.5),
      relative('check, free path', samples, 'node -e 0'),
      relative('check, busy path', samples, 'node -e 0'),
      relative('hook session-start, one broker', samples, 'node -e 0', 1.3),
    ];
  });
}

/** The hook in an empty registry, and among the tombstones of many directories. */
export function measureHook({ rounds, progress }) {
  return withSandbox(KEPT, (empty) =>
    withSandbox(KEPT, async (full) => {
      await makeTombstones(full, TOMBSTONES);
      const name = `hook session-start, ${TOMBSTONES} tombstones`;
      const subjects = [
        { name: 'node -e 0', measure: () => timeRun(EMPTY, { env: empty.env, cwd: empty.dir }) },
        { name: 'hook session-start, nothing to do', measure: () => timeHook(empty) },
        { name, measure: () => timeHook(full) },
      ];
      const samples = await interleave(subjects, rounds, progress('hook'));
      expectTombstones(full, TOMBSTONES);
      return subjects.slice(1).map((subject) => relative(subject.name, samples, 'node -e 0', 1.3));
    }),
  );
}

/** Small requests, one after the other, on connections that stay open. */
export function measureRoundTrips({ rounds, progress, requests }) {
  return withSandbox(KEPT, async (sandbox) => {
    const echo = (client) => () => echoLine(client);
    const tool = (client) => (at) => callEcho(client, `message ${at}`);
    const direct = sandbox.start(ECHO);
    const shim = sandbox.connect(ECHO);
    const directServer = await initialized(sandbox.start(MCP_SERVER));
    const shimServer = await initialized(sandbox.connect(MCP_SERVER));
    await settled(sandbox);
    const subjects = [
      { name: 'direct cat', measure: () => timeRoundTrips(echo(direct), requests) },
      { name: 'round trip p50, cat', measure: () => timeRoundTrips(echo(shim), requests) },
      { name: 'direct MCP server', measure: () => timeRoundTrips(tool(directServer), requests) },
      { name: 'round trip p50, MCP tool echo', measure: () => timeRoundTrips(tool(shimServer), requests) },
    ];
    const samples = await interleave(subjects, rounds, progress('round trips'));
    return [
      absolute('direct cat', samples['direct cat']),
      relative('round trip p50, cat', samples, 'direct cat'),
      absolute('direct MCP server', samples['direct MCP server']),
      relative('round trip p50, MCP tool echo', samples, 'direct MCP server'),
    ];
  });
}

/** A client that stays, once the broker it started has done all that follows a start. */
export async function settledClient(sandbox, cwd) {
  const client = sandbox.connect(ECHO, { cwd });
  await echoLine(client);
  await settled(sandbox);
  return client;
}

/** A broker starts a reap in the background; it must not run into what is measured. */
export async function settled(sandbox) {
  const isReaping = () => sandbox.processes().some(({ command }) => command.includes('broker.js reap'));
  if (await until(isReaping, { deadlineMs: 20_000, isEnough: (isRunning) => !isRunning })) throw new Error('a reap does not end');
}

async function echoLine(client) {
  client.send('x');
  if ((await client.nextLine()) !== 'x') throw new Error('another line came back than was sent');
}

async function callEcho(client, message) {
  if ((await client.echo(message)) !== `Echo: ${message}`) throw new Error('another message came back than was sent');
}

async function initialized(lines) {
  const client = new McpClient(lines);
  await client.initialize();
  return client;
}

function timeHook({ env, dir }) {
  const isSilent = (stdout, stderr) => stdout === '' && stderr === '';
  return timeRun(broker('hook', 'session-start'), { env, cwd: dir, input: HOOK_INPUT, accepts: isSilent });
}

async function makeTombstones(sandbox, count) {
  for (let at = 0; at < count; at += 1) {
    await timeFirstByte(HELLO, { env: sandbox.env, cwd: sandbox.makeDirectory(`ended-${at}`) });
  }
  await sandbox.broker(['stop', '--all']);
  await settled(sandbox);
  expectTombstones(sandbox, count);
}

function expectTombstones(sandbox, count) {
  const found = sandbox.records().filter(({ phase }) => phase === 'stopped').length;
  if (found !== count) throw new Error(`there are ${found} tombstones, not ${count}`);
}

/** A row that stands for itself. */
function absolute(name, samples) {
  return { name, unit: 'ms', value: summarize(samples), samples };
}

/** A row beside its baseline. */
function relative(name, samples, baseline, target) {
  return {
    name,
    unit: 'ms',
    value: summarize(samples[name]),
    samples: samples[name],
    baseline,
    ratio: compare(samples[name], samples[baseline]),
    ...(target !== undefined && { target }),
  };
}
