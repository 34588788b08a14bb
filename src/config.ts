/**
 * Every number of the product: the knobs a user may turn, then the fixed ones. Nothing else in the
 * code invents a duration or a size.
 */
import { homedir } from 'node:os';
import { join } from 'node:path';
import { BrokerError } from './errors.ts';

type Environment = Readonly<Record<string, string | undefined>>;

export interface Knob {
  /** The environment variable. */
  variable: string;
  default: number;
  unit: 'ms' | 'bytes' | 'count';
  min: number;
  max: number;
  /** What it means, as the README says it. */
  meaning: string;
}

const DAY_MS = 86_400_000;
const MIB = 1024 * 1024;

/** The knobs, by the name they have in code and in `config.json`. */
export const KNOBS = {
  graceMs: knob('CWD_BROKER_GRACE_MS', 60_000, 'ms', 0, DAY_MS, 'how long a broker waits after nobody needs it'),
  holdMs: knob('CWD_BROKER_HOLD_MS', 0, 'ms', 0, DAY_MS, 'how long a live hold keeps a broker warm (0 = not at all)'),
  dialMs: knob('CWD_BROKER_DIAL_MS', 1_000, 'ms', 10, 60_000, 'how long a client waits for the connection'),
  helloMs: knob('CWD_BROKER_HELLO_MS', 2_000, 'ms', 10, 60_000, 'how long a client waits for the answer to hello'),
  silentMs: knob('CWD_BROKER_SILENT_MS', 5_000, 'ms', 50, 60_000, 'how long a broker waits for a hello on a connection'),
  startMs: knob('CWD_BROKER_START_MS', 15_000, 'ms', 100, 600_000, 'how long a broker may take to start'),
  wedgedMs: knob('CWD_BROKER_WEDGED_MS', 5_000, 'ms', 100, 600_000, 'patience with an owner that is alive but silent'),
  shutdownMs: knob('CWD_BROKER_SHUTDOWN_MS', 10_000, 'ms', 8_000, 600_000, 'how long a whole shutdown may take'),
  maxFrameBytes: knob('CWD_BROKER_MAX_FRAME_BYTES', 16 * MIB, 'bytes', MIB, 1024 * MIB, 'longest control frame'),
  maxQueueBytes: knob('CWD_BROKER_MAX_QUEUE_BYTES', 32 * MIB, 'bytes', MIB, 1024 * MIB, 'most that is queued for one client'),
  maxChildren: knob('CWD_BROKER_MAX_CHILDREN', 256, 'count', 1, 65_536, 'children one broker may run'),
  maxLogBytes: knob('CWD_BROKER_MAX_LOG_BYTES', MIB, 'bytes', 1024, 1024 * MIB, 'log size before rotation (two files are kept)'),
} as const satisfies Record<string, Knob>;

export type KnobName = keyof typeof KNOBS;

/** The folders a user may move, beside the numeric knobs. */
export const FOLDER_VARIABLES = ['CWD_BROKER_STATE_DIR', 'CWD_BROKER_RUNTIME_DIR'] as const;

/** Values of all knobs, checked; and where the state dir is. */
export type Config = Readonly<Record<KnobName, number>> & { readonly stateDir: string };

/** Numbers nobody needs to turn; each with its reason. */
export const FIXED = {
  /** A helper gets this long to end after its stdin ended: the slowest well-behaved one measured needs 2.1 s. */
  stopStdinMs: 3_000,
  /** Then this long after SIGTERM, before SIGKILL. */
  stopTermMs: 2_000,
  /** SIGKILL takes effect within milliseconds; a process in uninterruptible sleep may need longer. */
  stopKillMs: 2_000,
  /** How often the directory is probed with clients, and idle. A stat every 5 s costs 24 CPU ms a minute. */
  probeBusyMs: 5_000,
  probeIdleMs: 15_000,
  /** One probe may take this long; a file system that never answers must not count as an answer. */
  probeDeadlineMs: 2_000,
  /** Three equal answers a second apart: a directory moved away and back leaves a hole of about 70 ms. */
  confirmEveryMs: 1_000,
  confirmTimes: 3,
  confirmSpanMs: 2_000,
  /** How long file events are gathered before one probe or one look at the registry. */
  debounceMs: 100,
  /** A broker looks at its own registry folder this often, beside every hello and file event. */
  selfCheckMs: 30_000,
  /** Record and socket are touched this often, so that temp cleaners leave them alone. */
  touchMs: 3_600_000,
  /** A detached reap at most this often, unless the predecessor crashed. */
  reapEveryMs: 3_600_000,
  /** How long after a broker serves; its first client comes first. */
  reapDelayMs: 2_000,
  /** A timer later than this means the process did not run: ask again rather than act. */
  latenessMs: 500,
  lateRecheckMs: 5_000,
  /** A client that said hello counts this long even before it attaches. */
  helloCountsMs: 5_000,
  /** Grace after the last hold of the cwd was given back and nobody is attached. */
  heldGraceMs: 5_000,
  /** At most one take-over from a silent owner in this time. */
  takeoverEveryMs: 600_000,
  /** What hiding, history, tombstone and socket may take beside the shutdown itself, each, on a disk that does not answer. */
  exitStepMs: 2_000,
  /** How long one waits for the start lock; it only saves work. */
  lockWaitMs: 2_000,
  /** The lock's own staleness; its library allows no less than 2 s. */
  lockStaleMs: 5_000,
  /** An ended helper's output is read this much longer, then its pipes are closed. */
  outputTailMs: 1_000,
  /** How long an ended helper waits for its client's second connection, to say how it ended. */
  sideWaitMs: 5_000,
  /** stderr kept for a client whose stderr connection has not come yet. */
  stderrRingBytes: 64 * 1024,
  /** How often the tree of each child is looked at for processes that left its group. */
  treeEveryMs: 15_000,
  /** And sooner after its start, when servers start what they need. */
  treeFirstMs: [500, 2_000, 6_000],
  /** A shim whose parent is gone leaves after this long without a byte either way. */
  shimOrphanMs: 600_000,
  /** What a SessionStart hook may take before it hands the rest to a detached reap. */
  hookBudgetMs: 300,
  /** Passes of `broker reap`, and the pause between them: SIGKILL comes only on a later pass. */
  reapPasses: 3,
  reapPauseMs: 2_000,
  /** Exits kept in the history. */
  historyEntries: 500,
  /** A folder whose cwd is gone is removed this long after its last broker ended. */
  folderKeptMs: 7 * DAY_MS,
  /** A folder of another machine is removed when nobody has touched it for this long; live brokers touch theirs hourly. */
  foreignKeptMs: 30 * DAY_MS,
  /** sun_path has 104 bytes on macOS and 108 on Linux, with the terminating zero. */
  socketPathBytes: 103,
} as const;

/** Where the state dir is: it must not depend on variables that differ between a shell, an editor and a hook. */
export function resolveStateDir(env: Environment, platform: NodeJS.Platform = process.platform): string {
  if (env.CWD_BROKER_STATE_DIR) return requireAbsolute('CWD_BROKER_STATE_DIR', env.CWD_BROKER_STATE_DIR);
  if (env.XDG_STATE_HOME?.startsWith('/')) return join(env.XDG_STATE_HOME, 'cwd-broker');
  const home = env.HOME?.startsWith('/') ? env.HOME : homedir();
  return platform === 'darwin'
    ? join(home, 'Library', 'Application Support', 'cwd-broker')
    : join(home, '.local', 'state', 'cwd-broker');
}

/**
 * Reads every knob: environment first, then `config.json` (already parsed), then the default.
 * @throws BrokerError USAGE that names the variable, the value and the range.
 */
export function loadConfig(env: Environment, file: unknown = {}): Config {
  const settings = asSettings(file);
  const values: Record<string, number> = {};
  for (const [name, one] of Object.entries(KNOBS)) {
    const fromEnv = env[one.variable];
    if (fromEnv !== undefined && fromEnv !== '') values[name] = checked(one, one.variable, fromEnv);
    else if (settings[name] !== undefined) values[name] = checked(one, `config.json: ${name}`, settings[name]);
    else values[name] = one.default;
  }
  return Object.freeze({ ...values, stateDir: resolveStateDir(env) }) as Config;
}

function knob(variable: string, value: number, unit: Knob['unit'], min: number, max: number, meaning: string): Knob {
  return { variable, default: value, unit, min, max, meaning };
}

function asSettings(file: unknown): Record<string, unknown> {
  if (typeof file !== 'object' || file === null || Array.isArray(file)) {
    throw new BrokerError('USAGE', 'config.json is not a JSON object', { hint: 'Write {"graceMs": 60000}, or remove it.' });
  }
  const unknown = Object.keys(file).filter((name) => !Object.hasOwn(KNOBS, name));
  if (unknown.length > 0) {
    throw new BrokerError('USAGE', `config.json has an unknown name: ${unknown.join(', ')}`, {
      hint: `Known names: ${Object.keys(KNOBS).join(', ')}.`,
    });
  }
  return file as Record<string, unknown>;
}

function checked(one: Knob, where: string, value: unknown): number {
  const digits = typeof value === 'string' ? value.trim() : typeof value === 'number' ? String(value) : '';
  const number = /^\d+$/.test(digits) ? Number(digits) : Number.NaN;
  if (!Number.isSafeInteger(number) || number < one.min || number > one.max) {
    throw new BrokerError('USAGE', `${where} is ${JSON.stringify(value)}, which is not in ${one.min}…${one.max} (${one.unit})`, {
      hint: `Use a whole number from ${one.min} to ${one.max}; the default is ${one.default}.`,
    });
  }
  return number;
}

/** @throws BrokerError USAGE for a path that depends on where a process was started. */
export function requireAbsolute(variable: string, value: string): string {
  if (value.startsWith('/')) return value;
  throw new BrokerError('USAGE', `${variable} is ${JSON.stringify(value)}, which is not an absolute path`, {
    hint: 'Give an absolute path: shells, editors and hooks start in different folders.',
  });
}
