/** Processes as the system shows them: which one is it, is it still there, and which belong to a folder. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

const hasProc = process.platform === 'linux';

/** What stays the same for as long as this very process lives; undefined when it is gone. A zombie is gone. */
function startTimeOf(pid) {
  return hasProc ? startTimeFromProc(pid) : startTimeFromPs(pid);
}

/** Remembers a process so that a reused pid is not taken for it. */
export function remember(pid) {
  const startTime = startTimeOf(pid);
  if (startTime === undefined) throw new Error(`process ${pid} is not there`);
  return { pid, startTime };
}

export function isAlive({ pid, startTime }) {
  return startTimeOf(pid) === startTime;
}

/** Its arguments, joined by spaces; empty when it is gone. */
export function commandOf(pid) {
  if (!hasProc) return ps('-ww', '-o', 'command=', '-p', String(pid)).trim();
  return readOrEmpty(`/proc/${pid}/cmdline`).replaceAll('\0', ' ').trim();
}

/** Living processes that name the folder in their arguments, environment or working directory; this one left out. */
export function processesOf(folder) {
  const found = hasProc ? readdirSync('/proc').flatMap((name) => processFromProc(name, folder)) : processesFromPs(folder);
  return found.filter(({ pid }) => pid !== process.pid);
}

function startTimeFromProc(pid) {
  // The name in parentheses may hold anything, so the fields are counted from behind it.
  const stat = readOrEmpty(`/proc/${pid}/stat`);
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return stat === '' || 'ZX'.includes(fields[0]) ? undefined : fields[19];
}

function startTimeFromPs(pid) {
  const [state = '', ...startTime] = ps('-o', 'stat=,lstart=', '-p', String(pid)).trim().split(/\s+/);
  return state === '' || state.startsWith('Z') ? undefined : startTime.join(' ');
}

function processFromProc(name, folder) {
  const pid = Number(name);
  if (!Number.isInteger(pid) || startTimeOf(pid) === undefined) return [];
  const command = commandOf(pid);
  const traces = [command, readOrEmpty(`/proc/${pid}/environ`), workingDirectoryOf(pid)];
  return traces.some((trace) => trace.includes(folder)) ? [{ pid, command }] : [];
}

function processesFromPs(folder) {
  return ps('-axwwE', '-o', 'pid=,command=')
    .split('\n')
    .filter((line) => line.includes(folder))
    .map((line) => ({ pid: Number.parseInt(line, 10), command: line.trim().replace(/^\d+\s+/, '') }))
    .filter(({ pid }) => startTimeOf(pid) !== undefined);
}

function ps(...args) {
  try {
    return execFileSync('ps', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], timeout: 10_000 });
  } catch (error) {
    // It says by its exit code that there is no such process.
    if (typeof error.status === 'number') return '';
    throw error;
  }
}

function readOrEmpty(file) {
  return orEmpty(() => readFileSync(file, 'utf8'));
}

function workingDirectoryOf(pid) {
  return orEmpty(() => readlinkSync(`/proc/${pid}/cwd`));
}

/** A process may end while it is looked at, and another user's may not be looked at. */
function orEmpty(read) {
  try {
    return read();
  } catch (error) {
    if (['ENOENT', 'ESRCH', 'EACCES', 'EPERM'].includes(error.code)) return '';
    throw error;
  }
}
