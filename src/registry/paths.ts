/** Where everything is: canonical roots, their keys, the state dir's files, the runtime dir's sockets. */
import { readFileSync } from 'node:fs';
import { lstat, mkdir, readdir, readFile, realpath, rename, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { FIXED, requireAbsolute } from '../config.ts';
import { BrokerError, describeError, hasErrno } from '../errors.ts';
import { readHere } from '../process/identity.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** Ids that may become part of a file name. */
const ID = /^[A-Za-z0-9_-]{1,64}$/;

export function isSafeId(value: unknown): value is string {
  return typeof value === 'string' && ID.test(value);
}

/**
 * The one spelling of a directory: links resolved as far as the path exists, the rest as given, so
 * that a deleted directory still has the name its broker knows it by.
 */
export async function canonicalRoot(path: string): Promise<string> {
  const absolute = resolve(path);
  const rest: string[] = [];
  for (let at = absolute; ; at = dirname(at)) {
    try {
      return join(await realpath(at), ...rest);
    } catch (error) {
      if (at === dirname(at)) return absolute;
      if (!hasErrno(error, 'ENOENT', 'ENOTDIR', 'EACCES', 'ELOOP')) throw error;
      rest.unshift(basename(at));
    }
  }
}

/** True when `path` is `root` or below it, compared on whole components. */
export function isWithin(path: string, root: string): boolean {
  return path === root || path.startsWith(root.endsWith('/') ? root : `${root}/`);
}

let machineId: string | undefined;

/** Names this machine, so that hosts which share a home never fight over one record. Read once. */
export function readMachineId(): string {
  machineId ??= findMachineId();
  return machineId;
}

function findMachineId(): string {
  for (const file of ['/etc/machine-id', '/var/lib/dbus/machine-id']) {
    try {
      const id = readFileSync(file, 'latin1').trim();
      if (id !== '') return id;
    } catch (error) {
      if (!hasErrno(error, 'ENOENT', 'EACCES')) throw error;
    }
  }
  return `host:${hostname()}`;
}

/** The folder name of a root: readable, and unique for path, machine and pid namespace. */
export function brokerKey(root: string, machineId = readMachineId(), pidNamespace = readHere().pidNamespace): string {
  const slug =
    basename(root)
      .replace(/[^A-Za-z0-9_-]+/g, '-')
      .slice(0, 40) || 'root';
  // Loaded here: commands that only list never form a key.
  const { createHash } = process.getBuiltinModule('node:crypto');
  const hash = createHash('sha256').update([root, machineId, pidNamespace].join('\0')).digest('hex').slice(0, 12);
  return `${slug}-${hash}`;
}

/** Files of the state dir. */
export interface StateLayout {
  stateDir: string;
  brokersDir: string;
  holdsDir: string;
  logsDir: string;
  historyFile: string;
  /** Its age says when the last detached reap was started. */
  reapStamp: string;
  folder(key: string): string;
  log(key: string): string;
}

export function stateLayout(stateDir: string): StateLayout {
  return {
    stateDir,
    brokersDir: join(stateDir, 'brokers'),
    holdsDir: join(stateDir, 'holds'),
    logsDir: join(stateDir, 'logs'),
    historyFile: join(stateDir, 'history.jsonl'),
    reapStamp: join(stateDir, 'reaped'),
    folder: (key) => join(stateDir, 'brokers', key),
    log: (key) => join(stateDir, 'logs', `${key}.log`),
  };
}

/** Reads `config.json` of the state dir; `{}` when there is none. @throws BrokerError USAGE when it is not JSON. */
export function readConfigFile(stateDir: string): unknown {
  const file = join(stateDir, 'config.json');
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if (hasErrno(error, 'ENOENT', 'ENOTDIR', 'EACCES')) return {};
    throw error;
  }
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new BrokerError('USAGE', `${file} is not valid JSON: ${describeError(error)}`, {
      cause: error,
      hint: 'Correct it, or remove it.',
    });
  }
}

/** Creates the folders of the state dir, 0700. @throws BrokerError STORE_FAILED. */
export async function makeStateDirs(layout: StateLayout, key: string): Promise<void> {
  try {
    for (const dir of [layout.folder(key), layout.logsDir, layout.holdsDir]) await mkdir(dir, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new BrokerError('STORE_FAILED', `cannot write the state dir ${layout.stateDir}: ${describeError(error)}`, {
      cause: error,
      hint: 'Make it writable, or point CWD_BROKER_STATE_DIR to a folder of yours.',
    });
  }
}

/** Socket names of one run. The instance is in each, so that no name can ever be another run's. */
export interface SocketNames {
  /** Where clients dial. */
  public: string;
  /** Where it is bound, then where it hides while leaving: `server.close()` unlinks only its bind path. */
  bind: string;
  hidden: string;
}

export function socketNames(runtimeDir: string, generation: number, instance: string): SocketNames {
  const stem = join(runtimeDir, `${generation}-${instance.slice(0, 12)}`);
  return { public: `${stem}.sock`, bind: `${stem}.bind`, hidden: `${stem}.hide` };
}

/** The longest socket name that `socketNames` can give, in bytes. */
const SOCKET_NAME_BYTES = '9999999-0123456789ab.sock'.length;

/** The list of runtime dirs, best first. */
export function runtimeDirCandidates(env: Environment, uid: number): string[] {
  const absolute = (path: string | undefined): string[] => (path?.startsWith('/') ? [path.replace(/\/+$/, '') || '/'] : []);
  return [
    ...(env.CWD_BROKER_RUNTIME_DIR ? absolute(requireAbsolute('CWD_BROKER_RUNTIME_DIR', env.CWD_BROKER_RUNTIME_DIR)) : []),
    ...absolute(env.XDG_RUNTIME_DIR).map((dir) => join(dir, 'cwd-broker')),
    ...absolute(env.TMPDIR).map((dir) => join(dir, `cwd-broker-${uid}`)),
    `/tmp/cwd-broker-${uid}`,
  ];
}

/** True when a socket in this runtime dir has a name that the system can bind. */
export function fitsSocketPath(dir: string): boolean {
  return Buffer.byteLength(dir) + 1 + SOCKET_NAME_BYTES <= FIXED.socketPathBytes;
}

/**
 * Picks the runtime dir, creates it if it is not there, and checks that it is ours alone.
 * @throws BrokerError PATH_TOO_LONG when no candidate is short enough; UNAVAILABLE when the first
 *   that is short enough must not be used, with the reason.
 */
export async function openRuntimeDir(env: Environment, uid = process.getuid?.() ?? 0): Promise<string> {
  const candidates = runtimeDirCandidates(env, uid);
  for (const dir of candidates) {
    if (!fitsSocketPath(dir)) continue;
    const isConfigured = dir === candidates[0] && Boolean(env.CWD_BROKER_RUNTIME_DIR);
    // A login that ended leaves XDG_RUNTIME_DIR pointing to nothing; making it is not our business.
    if (!isConfigured && !(await exists(dirname(dir)))) continue;
    await makePrivate(dir, isConfigured);
    const refusal = judgeRuntimeDir(await lstat(dir), uid);
    if (refusal === undefined) return dir;
    throw new BrokerError('UNAVAILABLE', `the runtime dir ${dir} is refused: ${refusal}`, {
      retryable: false,
      hint: 'Remove it or correct its owner and mode (0700), or point CWD_BROKER_RUNTIME_DIR to a folder of yours.',
    });
  }
  throw new BrokerError('PATH_TOO_LONG', `no runtime dir is short enough for a socket: ${candidates.join(', ')}`, {
    hint: `The folder may have ${FIXED.socketPathBytes - 1 - SOCKET_NAME_BYTES} bytes at most. Point CWD_BROKER_RUNTIME_DIR to a short path.`,
  });
}

/** Why a directory must not hold our sockets; undefined when it may. Pure. */
export function judgeRuntimeDir(
  stats: { isSymbolicLink(): boolean; isDirectory(): boolean; uid: number; mode: number },
  uid: number,
): string | undefined {
  if (stats.isSymbolicLink()) return 'it is a symbolic link';
  if (!stats.isDirectory()) return 'it is not a directory';
  if (stats.uid !== uid) return `it belongs to uid ${stats.uid}, not to ${uid}`;
  const mode = stats.mode & 0o777;
  if (mode !== 0o700) return `its mode is 0${mode.toString(8)}, not 0700`;
  return undefined;
}

async function makePrivate(dir: string, isConfigured: boolean): Promise<void> {
  try {
    await mkdir(dir, { mode: 0o700, recursive: isConfigured });
  } catch (error) {
    if (hasErrno(error, 'EEXIST')) return;
    throw new BrokerError('UNAVAILABLE', `cannot make the runtime dir ${dir}: ${describeError(error)}`, {
      cause: error,
      retryable: false,
      hint: 'Point CWD_BROKER_RUNTIME_DIR to a folder of yours.',
    });
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return true;
  } catch (error) {
    if (hasErrno(error, 'ENOENT', 'ENOTDIR', 'EACCES')) return false;
    throw error;
  }
}

/** Writes a whole file by temp + rename in the same folder, mode 0600. */
export async function writeAtomically(file: string, text: string): Promise<void> {
  const temp = `${file}.${process.pid}.${Math.random().toString(36).slice(2, 10)}.tmp`;
  try {
    await writeFile(temp, text, { mode: 0o600 });
    await rename(temp, file);
  } catch (error) {
    await rm(temp, { force: true });
    throw error;
  }
}

/** The names in a folder; empty when there is none. */
export async function listIfThere(dir: string): Promise<string[]> {
  try {
    return await readdir(dir);
  } catch (error) {
    if (hasErrno(error, 'ENOENT', 'ENOTDIR')) return [];
    throw error;
  }
}

/** The text of a file, or undefined when there is none. */
export async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (hasErrno(error, 'ENOENT', 'ENOTDIR')) return undefined;
    throw error;
  }
}
