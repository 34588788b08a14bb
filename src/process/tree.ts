/**
 * Which processes belong to a child: its group, its descendants while the parent chain is
 * unbroken, and the marker that every descendant inherits. Signals nothing.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { hasErrno } from '../errors.ts';
import { observe, psEnvironment } from './identity.ts';

/** One row of the process table. */
export interface ProcessEntry {
  pid: number;
  ppid: number;
  pgid: number;
  startTime: string;
}

/** A process by pid and start time, within one boot and namespace. */
export interface KnownProcess {
  pid: number;
  startTime: string;
}

/** The variable that names, oldest first, every `instance/child` a process descends from. */
export const MARKER_VARIABLE = 'CWD_BROKER_INSTANCE';

let upcoming: Promise<ProcessEntry[]> | undefined;

/**
 * The whole process table, without zombies. Many children may be looked at in one go and reading it
 * takes a while, so whoever asks in the same turn shares one reading; it never is older than the question.
 */
export function listProcesses(): Promise<ProcessEntry[]> {
  upcoming ??= new Promise((resolve) => setImmediate(resolve)).then(() => {
    upcoming = undefined;
    return process.platform === 'linux' ? listLinux() : listWithPs();
  });
  return upcoming;
}

/** The living members of a process group. Pure. */
export function groupMembers(table: readonly ProcessEntry[], pgid: number): ProcessEntry[] {
  return table.filter((entry) => entry.pgid === pgid);
}

/**
 * Everything below the given roots, roots left out, following parents. `isBoundary` stops the walk:
 * such a process and all below it are somebody else's. Pure.
 */
export function descendantsOf(
  table: readonly ProcessEntry[],
  roots: readonly KnownProcess[],
  isBoundary: (entry: ProcessEntry) => boolean = () => false,
): ProcessEntry[] {
  const children = new Map<number, ProcessEntry[]>();
  for (const entry of table) {
    const siblings = children.get(entry.ppid);
    if (siblings) siblings.push(entry);
    else children.set(entry.ppid, [entry]);
  }
  const alive = new Set(table.map((entry) => `${entry.pid} ${entry.startTime}`));
  const queue = roots.filter((root) => alive.has(`${root.pid} ${root.startTime}`)).map((root) => root.pid);
  const seen = new Set(queue);
  const found: ProcessEntry[] = [];
  for (let pid = queue.pop(); pid !== undefined; pid = queue.pop()) {
    for (const child of children.get(pid) ?? []) {
      if (seen.has(child.pid) || isBoundary(child)) continue;
      seen.add(child.pid);
      found.push(child);
      queue.push(child.pid);
    }
  }
  return found;
}

/** Pids from `pid` up to the first process, itself included. Pure. */
export function ancestorsOf(table: readonly ProcessEntry[], pid: number): number[] {
  const parents = new Map(table.map((entry) => [entry.pid, entry.ppid]));
  const chain: number[] = [];
  for (let at: number | undefined = pid; at !== undefined && at > 0 && !chain.includes(at); at = parents.get(at)) chain.push(at);
  return chain;
}

/** Appends an `instance/child` entry to an inherited marker chain. */
export function extendMarker(inherited: string | undefined, entry: string): string {
  return inherited ? `${inherited},${entry}` : entry;
}

/** True when the chain names a child of this broker instance anywhere. */
export function markerNames(chain: string | undefined, instance: string): boolean {
  return (chain ?? '').split(',').some((entry) => entry.startsWith(`${instance}/`));
}

/** The newest `instance/child` entry of a process's marker; undefined when it has none or cannot be read. */
export function readMarker(pid: number): string | undefined {
  return readProcFile(pid, 'environ')
    ?.split('\0')
    .find((pair) => pair.startsWith(`${MARKER_VARIABLE}=`))
    ?.slice(MARKER_VARIABLE.length + 1)
    .split(',')
    .at(-1);
}

/** True for a broker daemon: never anyone's descendant, whoever adopted it. */
export function isBrokerDaemon(pid: number): boolean {
  const argv = readProcFile(pid, 'cmdline')?.split('\0') ?? [];
  return argv.includes('--instance') && argv.slice(0, 4).some((word) => basename(word) === 'brokerd.js');
}

/** The command line of a process, or undefined when it is gone or not ours to read. */
export function readCommandLine(pid: number): string[] | undefined {
  const text = readProcFile(pid, 'cmdline');
  return text === undefined ? undefined : text.split('\0').slice(0, -1);
}

function readProcFile(pid: number, name: 'environ' | 'cmdline'): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'utf8');
  } catch (error) {
    if (hasErrno(error, 'ENOENT', 'ESRCH', 'EACCES', 'EPERM')) return undefined;
    throw error;
  }
}

function listLinux(): ProcessEntry[] {
  const table: ProcessEntry[] = [];
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid <= 0) continue;
    const observation = observe(pid);
    if (observation.state !== 'alive') continue;
    table.push({ pid, ppid: observation.ppid, pgid: observation.pgid, startTime: observation.startTime });
  }
  return table;
}

async function listWithPs(): Promise<ProcessEntry[]> {
  const { execFile } = process.getBuiltinModule('node:child_process');
  const text = await new Promise<string>((resolve, reject) => {
    execFile(
      'ps',
      ['-axww', '-o', 'pid=,ppid=,pgid=,stat=,lstart='],
      { env: psEnvironment(), timeout: 5_000, maxBuffer: 1 << 26 },
      (error, stdout) => (error ? reject(error) : resolve(stdout)),
    );
  });
  return parsePsTable(text);
}

/** Parses `pid ppid pgid stat lstart` lines, zombies left out. */
export function parsePsTable(text: string): ProcessEntry[] {
  const table: ProcessEntry[] = [];
  for (const line of text.split('\n')) {
    const match = /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(.+?)\s*$/.exec(line);
    const [, pid, ppid, pgid, stat, startTime] = match ?? [];
    if (stat === undefined || startTime === undefined || stat.startsWith('Z')) continue;
    table.push({ pid: Number(pid), ppid: Number(ppid), pgid: Number(pgid), startTime });
  }
  return table;
}
