/** Runs a command without a broker, supervised by this process with the same ladder. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { constants } from 'node:os';
import { FIXED } from '../config.ts';
import { spawnGated } from '../process/gate.ts';
import { stopTree } from '../process/stop.ts';

const TIMES = { stdinMs: FIXED.stopStdinMs, termMs: FIXED.stopTermMs, killMs: FIXED.stopKillMs };

/** @returns the command's exit code. @throws BrokerError NOT_FOUND, UPSTREAM_START_FAILED. */
/** Without a `cwd` it runs where we are, also where that cannot be named. */
export async function runDirectly(request: { command: string; args: readonly string[]; cwd?: string }): Promise<number> {
  const { command, args, cwd } = request;
  const child = await spawnGated({
    command,
    args,
    ...(cwd !== undefined && { cwd }),
    env: process.env as Record<string, string>,
    marker: `${randomBytes(16).toString('hex')}/direct`,
    output: 'inherit',
  });
  const { stdin } = child.process;
  let killedBy: NodeJS.Signals | undefined;
  const stop = (): void => void stopTree(child.target, TIMES, () => stdin?.end());
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      killedBy ??= signal;
      stop();
    });
  }
  if (stdin) process.stdin.pipe(stdin, { end: false });
  process.stdin.once('end', stop);
  child.open();
  const [code, signal] = (await once(child.process, 'exit')) as [number | null, NodeJS.Signals | null];
  process.stdin.unpipe();
  process.stdin.pause();
  await stopTree(child.target, TIMES);
  const ended = killedBy ?? signal;
  return ended === null ? (code ?? 1) : 128 + constants.signals[ended];
}
