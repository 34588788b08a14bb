/**
 * Starts a background process that is nobody's child: a shell in between starts it and leaves at
 * once. It has its own session, no stdin, its output in a log, an allow-listed environment, and
 * holds nothing else of the starter but one pipe on which it says that it is ready.
 */
import { spawn } from 'node:child_process';
import { closeSync, openSync, readdirSync, readlinkSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { BrokerError, hasErrno } from '../errors.ts';

const DOUBLE_SPAWN = '"$@" &';

/** Variables a background process of ours needs. Everything else, keys and tokens first, stays behind. */
const ALLOWED = /^(PATH|HOME|USER|LOGNAME|LANG|LC_[A-Z]+|TZ|TMPDIR|XDG_RUNTIME_DIR|XDG_STATE_HOME|CWD_BROKER_[A-Z_]+)$/;

/** The environment of a background process: allow-listed, and without the marker, since it is nobody's descendant. */
export function daemonEnvironment(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) {
    if (value !== undefined && ALLOWED.test(name) && name !== 'CWD_BROKER_INSTANCE') kept[name] = value;
  }
  return kept;
}

/**
 * Closes what this process inherited from its starter beyond the standard descriptors: a lock or a
 * pipe that lives on in a daemon is held for hours. To be called before anything is opened: what Node
 * has open by then are anonymous inodes, pipes of which it holds both ends, and perhaps a source of
 * randomness. Does nothing where there is no /proc.
 */
export function closeInherited(keep: readonly number[]): void {
  const open = listDescriptors();
  const ends = (target: string): number => open.filter((one) => one.target === target).length;
  for (const { fd, target } of open) {
    const isOwn = /^anon_inode:|^\/dev\/u?random$/.test(target) || (target.startsWith('pipe:') && ends(target) > 1);
    if (fd > 2 && !keep.includes(fd) && !isOwn) closeSync(fd);
  }
}

function listDescriptors(): Array<{ fd: number; target: string }> {
  try {
    return readdirSync('/proc/self/fd').flatMap((name) => {
      const target = findTarget(name);
      return target === undefined ? [] : [{ fd: Number(name), target }];
    });
  } catch (error) {
    if (hasErrno(error, 'ENOENT', 'EACCES')) return [];
    throw error;
  }
}

/** Undefined for the descriptor that the listing itself needed. */
function findTarget(fd: string): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch (error) {
    if (hasErrno(error, 'ENOENT', 'EACCES')) return undefined;
    throw error;
  }
}

export interface DetachedRequest {
  /** Options of Node itself. */
  nodeOptions?: readonly string[];
  script: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
  /** Receives stdout and stderr, created 0600; absent means nowhere. */
  logFile?: string;
}

/** Starts it and does not look back. */
export function startDetached(request: DetachedRequest): void {
  launch(request, false).unref();
}

/**
 * Starts it and resolves with the first line it writes to descriptor 3, without the newline.
 * @throws BrokerError START_TIMEOUT after `deadlineMs`; UNAVAILABLE when it ended without a word.
 */
export async function startDetachedUntilReady(request: DetachedRequest, deadlineMs: number): Promise<string> {
  const shell = launch(request, true);
  const pipe = shell.stdio?.[3] as Readable | undefined;
  if (pipe === undefined) throw new BrokerError('UNAVAILABLE', 'the system refuses another process');
  shell.unref();
  try {
    return await firstLine(pipe, deadlineMs);
  } finally {
    pipe.destroy();
  }
}

function launch(request: DetachedRequest, isAwaited: boolean): ReturnType<typeof spawn> {
  const log = request.logFile === undefined ? undefined : openSync(request.logFile, 'a', 0o600);
  try {
    const output = log ?? 'ignore';
    return spawn(
      '/bin/sh',
      ['-c', DOUBLE_SPAWN, 'sh', process.execPath, ...(request.nodeOptions ?? []), request.script, ...request.args],
      {
        cwd: '/',
        env: request.env,
        detached: true,
        stdio: ['ignore', output, output, ...(isAwaited ? (['pipe'] as const) : [])],
      },
    ).on('error', () => undefined);
  } finally {
    if (log !== undefined) closeSync(log);
  }
}

function firstLine(pipe: Readable, deadlineMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    const timer = setTimeout(() => {
      reject(new BrokerError('START_TIMEOUT', `the background process said nothing for ${deadlineMs} ms`));
    }, deadlineMs);
    const end = (): void => {
      clearTimeout(timer);
      reject(new BrokerError('UNAVAILABLE', 'the background process ended before it was ready'));
    };
    pipe.setEncoding('utf8');
    pipe.on('data', (chunk: string) => {
      text += chunk;
      const at = text.indexOf('\n');
      if (at < 0) return;
      clearTimeout(timer);
      resolve(text.slice(0, at));
    });
    pipe.on('end', end);
    pipe.on('error', end);
  });
}
