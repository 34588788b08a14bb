/** Which processes of a test are alive: found by the test's own folder in their environment, arguments or cwd. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { observe } from '../../src/process/identity.ts';

export interface TestProcess {
  pid: number;
  startTime: string;
  command: string;
}

/** Living processes that carry `folder` in their environment, command line or cwd; this one left out. */
export function processesOf(folder: string): TestProcess[] {
  return readdirSync('/proc').flatMap((name): TestProcess[] => {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid || pid === process.ppid) return [];
    const seen = observe(pid);
    if (seen.state !== 'alive') return [];
    const command = read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ').trim();
    const traces = [command, read(`/proc/${pid}/environ`), link(`/proc/${pid}/cwd`)];
    if (!traces.some((trace) => trace.includes(folder)) || command.includes('vitest')) return [];
    return [{ pid, startTime: seen.startTime, command }];
  });
}

/** True while this very process lives. */
export function isAlive(pid: number): boolean {
  return observe(pid).state === 'alive';
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

function link(file: string): string {
  try {
    return readlinkSync(file);
  } catch {
    return '';
  }
}
