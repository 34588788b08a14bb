/**
 * Starts a child behind a gate: a shell waits for a byte on descriptor 3 and only then becomes the
 * command. So a child can be recorded under its final pid before it runs, and one that could not be
 * recorded never runs: end of file in place of the byte makes the shell leave.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { BrokerError, describeError, hasErrno } from '../errors.ts';
import { observe } from './identity.ts';
import { adoptGroup, type StopTarget } from './stop.ts';
import { extendMarker, MARKER_VARIABLE } from './tree.ts';

const GATE_SCRIPT = 'IFS= read -r _ <&3 || exit 125; exec "$@" 3<&-';

export interface ChildCommand {
  command: string;
  args: readonly string[];
  /** Default: ours. */
  cwd?: string;
  env: Readonly<Record<string, string>>;
  /** The newest `instance/child` marker entry. */
  marker: string;
  /** `pipe` hands the stream to the caller, `inherit` passes on ours. stdin is always a pipe. */
  output: 'pipe' | 'inherit';
}

/** A child that exists and does not run its command yet. */
export interface GatedChild {
  process: ChildProcess;
  target: StopTarget;
  /** Lets the command run. */
  open(): void;
  /** The command never runs; resolves when the shell is gone. */
  abandon(): Promise<void>;
}

/**
 * Spawns the gate, in a process group of its own.
 * @throws BrokerError NOT_FOUND when the working directory is gone; UPSTREAM_START_FAILED when the
 *   system refuses another process.
 */
export async function spawnGated(request: ChildCommand): Promise<GatedChild> {
  const child = await trySpawn(request);
  const gate = child.stdio[3] as Writable;
  gate.on('error', ignoreBrokenPipe);
  child.stdin?.on('error', ignoreBrokenPipe);
  const pid = child.pid as number;
  const observation = observe(pid);
  const startTime = observation.state === 'alive' ? observation.startTime : '';
  const target: StopTarget = { pid, startTime, pgid: pid, marker: request.marker, known: [] };
  // Where processes cannot be listed now, the members' markers have to do.
  child.once('exit', () => void adoptGroup(target).catch(() => undefined));
  return {
    process: child,
    target,
    open: () => void gate.end('\n'),
    abandon: async () => {
      const exited = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined;
      gate.destroy();
      await exited;
    },
  };
}

/** The shell that is the gate. Some refusals are thrown, some come as an event; without descriptors there are not even pipes. */
async function trySpawn(request: ChildCommand): Promise<ChildProcess> {
  try {
    const child = spawnShell(request);
    child.on('error', () => undefined);
    if (child.pid === undefined) await once(child, 'spawn');
    return child;
  } catch (error) {
    // The shell is there, so what is not there is the directory.
    if (hasErrno(error, 'ENOENT', 'ENOTDIR')) {
      throw new BrokerError('NOT_FOUND', `the working directory is gone: ${request.cwd ?? 'the current one'}`, {
        cause: error,
        hint: 'Start the command from a directory that exists.',
      });
    }
    throw new BrokerError('UPSTREAM_START_FAILED', `cannot start ${request.command}: ${describeError(error)}`, { cause: error });
  }
}

/**
 * A plain `sh` may drop variables whose names are no identifiers (npm has such), bash passes them on.
 */
function shellFor(env: ChildCommand['env']): string {
  const isPlain = Object.keys(env).every((name) => /^[A-Za-z_]\w*$/.test(name));
  return isPlain || !existsSync('/bin/bash') ? '/bin/sh' : '/bin/bash';
}

function spawnShell(request: ChildCommand): ChildProcess {
  return spawn(shellFor(request.env), ['-c', GATE_SCRIPT, 'sh', request.command, ...request.args], {
    ...(request.cwd !== undefined && { cwd: request.cwd }),
    env: { ...request.env, [MARKER_VARIABLE]: extendMarker(request.env[MARKER_VARIABLE], request.marker) },
    detached: true,
    stdio: ['pipe', request.output, request.output, 'pipe'],
  });
}

/** Writing to a child that closed its end is its choice, and its exit says the rest. */
function ignoreBrokenPipe(error: unknown): void {
  if (!hasErrno(error, 'EPIPE', 'ECONNRESET', 'ERR_STREAM_DESTROYED', 'ERR_STREAM_WRITE_AFTER_END')) throw error;
}
