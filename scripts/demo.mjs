/** Shows, with real processes, that nothing a broker started outlives the need for it. Run by `npm run demo`. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { commandOf, isAlive, remember } from './processes.mjs';
import { fail, MCP_SERVER, until, withSandbox } from './sandbox.mjs';
import { McpClient } from './stdio-client.mjs';

const GRACE_MS = 2_000;

/** Answers one line, then ignores everything that politely asks it to end. It gives up by itself should the demo fail. */
const STUBBORN_SERVER = `
process.on('SIGTERM', () => undefined);
process.stdin.on('data', () => process.stdout.write('ready\\n'));
setTimeout(() => process.exit(1), 120_000);
`;

const startedAt = performance.now();
try {
  await withSandbox({ CWD_BROKER_GRACE_MS: String(GRACE_MS) }, demo);
} catch (error) {
  fail(`✗ ${error.message}`);
}
say(`\n${process.exitCode ? 'The demo failed' : 'All of it holds'}, after ${seconds(performance.now() - startedAt)}.`);

async function demo(sandbox) {
  const { checkout, worktree } = await makeRepository(sandbox);
  await twoClientsShareOneBroker(sandbox, worktree);
  await worktreeIsRemoved(sandbox, checkout, worktree);
  await brokerIsKilled(sandbox, checkout);
  await nothingIsLeft(sandbox);
}

async function makeRepository(sandbox) {
  const checkout = sandbox.makeDirectory('checkout');
  const worktree = join(sandbox.dir, 'worktree');
  const git = async (...args) => {
    const identity = ['-c', 'user.name=demo', '-c', 'user.email=demo@example.invalid'];
    const { exitCode, stderr } = await sandbox.run(['git', ...identity, ...args], { cwd: checkout });
    prove(exitCode === 0, `git ${args.slice(0, 2).join(' ')}`, stderr);
  };
  say('A git repository with a worktree');
  await git('init', '--quiet');
  await git('commit', '--quiet', '--allow-empty', '--message', 'first');
  await git('worktree', 'add', '--quiet', worktree);
  return { checkout, worktree };
}

async function twoClientsShareOneBroker(sandbox, worktree) {
  say('\nAct 1: two clients at the same moment, one broker');
  const shims = [sandbox.connect(MCP_SERVER, { cwd: worktree }), sandbox.connect(MCP_SERVER, { cwd: worktree })];
  const answers = await Promise.all(shims.map((shim, at) => askEcho(shim, `hello from client ${at + 1}`)));
  for (const [at, answer] of answers.entries()) {
    prove(answer === `Echo: hello from client ${at + 1}`, `client ${at + 1} got its own answer: ${answer}`, answer);
  }
  await show(sandbox, 'ls');

  const { broker, servers } = await onlyBroker(sandbox, 2);
  const daemons = sandbox.processes().filter(({ command }) => command.includes('brokerd.js'));
  prove(daemons.length === 1 && daemons[0].pid === broker.pid, `exactly one broker runs: pid ${broker.pid}`, daemons);
  const [record, ...others] = sandbox.records();
  prove(others.length === 0, `its record is the only one: generation ${record.generation}, ${record.phase}`, others);
  const recorded = record.children.map(({ pid }) => pid).sort();
  prove(
    String(recorded) === String(servers.map(({ pid }) => pid).sort()),
    `both servers are on record: pids ${recorded.join(', ')}`,
    record,
  );

  const leftAt = performance.now();
  await Promise.all(shims.map((shim) => shim.leave()));
  say(`  both clients have ended their stdin; nobody needs the broker now, and its grace is ${seconds(GRACE_MS)}`);
  await proveGone([broker, ...servers], 20_000, `broker and servers ended by themselves`, leftAt);
  await proveNoSocket(sandbox);
  const ended = await show(sandbox, 'ls', '--all');
  prove(/\bidle\b/.test(ended), 'the history gives the reason: idle', ended);
}

async function worktreeIsRemoved(sandbox, checkout, worktree) {
  say('\nAct 2: the worktree is removed while a client is connected');
  const shim = sandbox.connect(MCP_SERVER, { cwd: worktree });
  const answer = await askEcho(shim, 'still here');
  prove(answer === 'Echo: still here', `a client is connected: ${answer}`, answer);
  const { broker, servers } = await onlyBroker(sandbox, 1);
  const client = remember(shim.pid);

  const { exitCode, stderr } = await sandbox.run(['git', 'worktree', 'remove', '--force', worktree], { cwd: checkout });
  const removedAt = performance.now();
  prove(exitCode === 0, 'git worktree remove --force', stderr);
  await proveGone([broker, ...servers, client], 25_000, 'broker, server and shim are gone', removedAt);
  await proveNoSocket(sandbox);
  const ended = await show(sandbox, 'ls', '--all');
  prove(/\bcwd-gone\b/.test(ended), 'the history gives the reason: cwd-gone', ended);
}

async function brokerIsKilled(sandbox, checkout) {
  say('\nAct 3: the broker is killed, and its server ignores everything polite');
  const script = join(sandbox.dir, 'stubborn-server.mjs');
  writeFileSync(script, STUBBORN_SERVER);
  const shim = sandbox.connect([process.execPath, script], { cwd: checkout });
  shim.send('are you there?');
  prove((await shim.nextLine()) === 'ready', 'a client talks to a stubborn server');
  const { entry, broker, servers } = await onlyBroker(sandbox, 1);

  killBroker(broker, entry.instance);
  await proveGone([broker], 5_000, 'the broker was killed with SIGKILL', performance.now());
  const { code } = await shim.exited;
  prove(code === 1, `the client was told: ${shim.stderr.trim()}`, code);
  prove(servers.every(isAlive), `its server still runs: pid ${servers[0].pid}`);
  const orphaned = await show(sandbox, 'ls');
  prove(/\borphan\b/.test(orphaned), '`broker ls` calls it orphan', orphaned);

  const hookAt = performance.now();
  const input = JSON.stringify({ session_id: 'demo', cwd: checkout, hook_event_name: 'SessionStart', source: 'startup' });
  const hook = await sandbox.broker(['hook', 'session-start'], { cwd: checkout, input });
  const said = hook.stdout + hook.stderr;
  const took = seconds(performance.now() - hookAt);
  prove(hook.exitCode === 0 && said === '', `the next SessionStart hook prints nothing and exits 0, in ${took}`, said);
  await proveGone(servers, 15_000, 'the stubborn server is gone', hookAt);
  const live = await until(() => liveRecords(sandbox), { deadlineMs: 15_000, isEnough: (records) => records.length === 0 });
  prove(live.length === 0, 'its record is retired', live);
  const ended = await show(sandbox, 'ls', '--all');
  prove(/\breaped: /.test(ended), `the history says that it was ${ended.match(/reaped: \w+/)?.[0]}`, ended);
}

async function nothingIsLeft(sandbox) {
  say('\nAt the end');
  // A reap that was started in the background may still be looking.
  const left = await until(() => sandbox.leftovers(), { deadlineMs: 15_000, isEnough: (lines) => lines.length === 0 });
  prove(left.length === 0, 'no process, no socket and no live record is left', left);
}

/** Only a process that is this very run of the broker may be killed. */
function killBroker(broker, instance) {
  const command = commandOf(broker.pid);
  const isOurs = isAlive(broker) && command.includes('brokerd.js') && command.includes(instance);
  prove(isOurs, `pid ${broker.pid} is verified to be that broker`, command);
  process.kill(broker.pid, 'SIGKILL');
}

async function askEcho(shim, message) {
  const client = new McpClient(shim);
  await client.initialize();
  return client.echo(message);
}

/** The one broker that `broker ls --json` knows, with the processes it runs. */
async function onlyBroker(sandbox, upstreamCount) {
  const entries = await sandbox.list();
  const [entry] = entries;
  const isRight = entries.length === 1 && entry.verdict === 'live' && entry.upstreams.length === upstreamCount;
  prove(isRight, `\`broker ls --json\` lists one broker, live, upstreams: ${upstreamCount}`, entries);
  return { entry, broker: remember(entry.pid), servers: entry.upstreams.map(({ pid }) => remember(pid)) };
}

function liveRecords(sandbox) {
  return sandbox.records().filter(({ phase }) => phase !== 'stopped');
}

async function proveGone(processes, deadlineMs, what, since) {
  const alive = await until(() => processes.filter(isAlive), { deadlineMs, isEnough: ({ length }) => length === 0 });
  const pids = processes.map(({ pid }) => pid).join(', ');
  prove(alive.length === 0, `${what} after ${seconds(performance.now() - since)} (pids ${pids})`, alive);
}

async function proveNoSocket(sandbox) {
  const sockets = await until(() => sandbox.sockets(), { deadlineMs: 2_000, isEnough: ({ length }) => length === 0 });
  prove(sockets.length === 0, 'its socket is gone', sockets);
}

async function show(sandbox, ...args) {
  const { stdout } = await sandbox.broker(args);
  say(`  $ broker ${args.join(' ')}`);
  say(stdout.replace(/^(?=.)/gm, '    '));
  return stdout;
}

/** One fact: a line when it holds, the end of the demo with what was seen instead when it does not. */
function prove(isTrue, fact, seen) {
  if (!isTrue)
    throw new Error(seen === undefined ? fact : `${fact}\n  seen: ${typeof seen === 'string' ? seen : JSON.stringify(seen)}`);
  say(`  ✓ ${fact}`);
}

function seconds(ms) {
  return `${(ms / 1000).toFixed(1)} s`;
}

function say(line) {
  process.stdout.write(`${line}\n`);
}
