/**
 * Says whether a process is the one that was meant: pid, start time, boot and pid namespace
 * together. A pid alone is never an identity; it is reused.
 *
 * Every command starts by loading this, so what only some systems need is loaded where it is used.
 */
import { readFileSync, readlinkSync } from 'node:fs';
import { errnoOf, hasErrno } from '../errors.ts';

/** Which process, for good. All values are compared as strings, never as times. */
export interface ProcessIdentity {
  pid: number;
  /** Linux: clock ticks since boot (field 22 of /proc/PID/stat). Elsewhere: `ps -o lstart`, whole seconds. */
  startTime: string;
  bootId: string;
  /** Linux: the namespace's inode name, `pid:[4026531836]`. Elsewhere: empty. */
  pidNamespace: string;
}

/** What the operating system says of a pid right now. */
export type Observation =
  | { state: 'alive'; startTime: string; ppid: number; pgid: number; isStopped: boolean }
  | { state: 'zombie'; startTime: string }
  | { state: 'absent' }
  | { state: 'unreadable'; errno: string };

/** `reused`: ours is dead and the pid is somebody else's. `unknown`: no evidence, so leave it alone. */
export type IdentityVerdict = 'ours' | 'dead' | 'reused' | 'unknown';

/** This machine's boot and this process's pid namespace. */
export interface Here {
  bootId: string;
  pidNamespace: string;
}

let here: Here | undefined;

/** Where this process runs. Read once: neither can change while it lives. */
export function readHere(): Here {
  here ??= process.platform === 'linux' ? readLinuxHere() : readOtherHere();
  return here;
}

/** Identity of this very process. */
export function ownIdentity(): ProcessIdentity {
  const identity = identify(process.pid);
  if (identity === undefined) throw new Error('this process cannot observe itself');
  return identity;
}

/** Identity of a living process, or undefined when it is gone or cannot be observed. */
export function identify(pid: number): ProcessIdentity | undefined {
  const observation = observe(pid);
  if (observation.state !== 'alive') return undefined;
  return { pid, startTime: observation.startTime, ...readHere() };
}

/** Judges a recorded identity against an observation. Pure. */
export function judgeIdentity(recorded: ProcessIdentity, observation: Observation, at: Here): IdentityVerdict {
  if (recorded.bootId !== at.bootId) return 'dead';
  if (recorded.pidNamespace !== at.pidNamespace) return 'unknown';
  switch (observation.state) {
    case 'absent':
    case 'zombie':
      return 'dead';
    case 'unreadable':
      return 'unknown';
    case 'alive':
      return observation.startTime === recorded.startTime ? 'ours' : 'reused';
  }
}

/** Observes and judges in one synchronous step: nothing can come between this and a signal in the same turn. */
export function verifyIdentity(recorded: ProcessIdentity): IdentityVerdict {
  return judgeIdentity(recorded, observe(recorded.pid), readHere());
}

/** What is known of a pid, synchronously. */
export function observe(pid: number): Observation {
  return process.platform === 'linux' ? observeLinux(pid) : observeWithPs(pid);
}

/** Parses /proc/PID/stat; the command name may hold spaces and parentheses, so fields count from the last `)`. */
export function parseStat(text: string): Observation {
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state, ppid, pgid] = fields;
  const startTime = fields[19];
  if (state === undefined || startTime === undefined) return { state: 'unreadable', errno: 'EBADSTAT' };
  if (state === 'Z' || state === 'X') return { state: 'zombie', startTime };
  return { state: 'alive', startTime, ppid: Number(ppid), pgid: Number(pgid), isStopped: state === 'T' || state === 't' };
}

function observeLinux(pid: number): Observation {
  try {
    return parseStat(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch (error) {
    // With hidepid a living process has no /proc entry: only ESRCH from the kernel proves absence.
    if (hasErrno(error, 'ENOENT', 'ESRCH')) return probePid(pid);
    return { state: 'unreadable', errno: errnoOf(error) ?? 'EUNKNOWN' };
  }
}

function probePid(pid: number): Observation {
  try {
    process.kill(pid, 0);
    return { state: 'unreadable', errno: 'ENOENT' };
  } catch (error) {
    return hasErrno(error, 'ESRCH') ? { state: 'absent' } : { state: 'unreadable', errno: errnoOf(error) ?? 'EUNKNOWN' };
  }
}

function observeWithPs(pid: number): Observation {
  const probed = probePid(pid);
  if (probed.state === 'absent' || (probed.state === 'unreadable' && probed.errno === 'EPERM')) return probed;
  try {
    const line = process
      .getBuiltinModule('node:child_process')
      .execFileSync('ps', ['-ww', '-o', 'ppid=,pgid=,stat=,lstart=', '-p', String(pid)], {
        encoding: 'utf8',
        env: psEnvironment(),
        stdio: ['ignore', 'pipe', 'ignore'],
        timeout: 2_000,
      });
    return parsePsLine(line);
  } catch (error) {
    return { state: 'unreadable', errno: errnoOf(error) ?? 'EPS' };
  }
}

/** `ps` prints start times as local text: the same zone and locale for all who compare them. */
export function psEnvironment(): Record<string, string> {
  return { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };
}

/** Parses `ppid pgid stat lstart`, as `ps` prints them under the C locale. */
export function parsePsLine(line: string): Observation {
  const match = /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.+?)\s*$/.exec(line);
  const [, ppid, pgid, stat, startTime] = match ?? [];
  if (stat === undefined || startTime === undefined) return { state: 'unreadable', errno: 'EPS' };
  if (stat.startsWith('Z')) return { state: 'zombie', startTime };
  return { state: 'alive', startTime, ppid: Number(ppid), pgid: Number(pgid), isStopped: stat.startsWith('T') };
}

function readLinuxHere(): Here {
  return {
    bootId: readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim(),
    pidNamespace: readlinkSync('/proc/self/ns/pid'),
  };
}

function readOtherHere(): Here {
  const { execFileSync } = process.getBuiltinModule('node:child_process');
  const bootId = execFileSync('sysctl', ['-n', 'kern.bootsessionuuid'], { encoding: 'utf8', timeout: 2_000 });
  return { bootId: bootId.trim(), pidNamespace: '' };
}
