/**
 * The commands that take flags and at most one argument, declared once and read twice: here without
 * any library, whose loading costs as much as many of them do, and by the command tree, which has
 * the help and the error texts.
 */
export interface SimpleCommand {
  name: string;
  description: string;
  /** As the help shows it: `[optional]` or `<required>`. */
  argument?: { name: string; help: string };
  /** Without a value. */
  flags: ReadonlyArray<{ name: string; help: string }>;
  examples: readonly string[];
  /** @returns the exit code. */
  run(argument: string | undefined, flags: Readonly<Record<string, boolean>>): Promise<number>;
}

const CWD = { name: '[cwd]', help: 'the directory (default: the current one)' };
const JSON_FLAG = { name: 'json', help: 'print JSON' };

export const SIMPLE_COMMANDS: readonly SimpleCommand[] = [
  {
    name: 'ls',
    description: 'list every broker, also those of deleted directories',
    flags: [
      { name: 'all', help: 'also show tombstones and the exit history' },
      { name: 'cost', help: 'show CPU and memory of each broker with all it runs' },
      { name: 'watch', help: 'show again whenever something changes' },
      JSON_FLAG,
    ],
    examples: ['broker ls', 'broker ls --cost', 'broker ls --json | jq ".[].cwd"'],
    run: async (_argument, flags) => (await import('./ls.ts')).ls(flags),
  },
  {
    name: 'status',
    description: 'one broker: who uses it, why it is still up, when it would exit, what it costs',
    argument: CWD,
    flags: [JSON_FLAG],
    examples: ['broker status', 'broker status ~/work/app --json'],
    run: async (cwd, flags) => (await import('./status.ts')).status(cwd, flags),
  },
  {
    name: 'stop',
    description: 'end a broker with all it runs; nothing there is success',
    argument: CWD,
    flags: [
      { name: 'all', help: 'every broker' },
      { name: 'force', help: 'also one that does not answer: SIGTERM, then SIGKILL, on a verified identity' },
      JSON_FLAG,
    ],
    examples: ['broker stop', 'broker stop --all', 'broker stop --force ~/work/app'],
    run: async (cwd, flags) => (await import('./stop.ts')).stop(cwd, flags),
  },
  {
    name: 'reap',
    description: 'clean up after brokers that are dead or whose directory is gone',
    flags: [
      { name: 'dry-run', help: 'say what would be done, and do nothing' },
      { name: 'quiet', help: 'print nothing' },
      JSON_FLAG,
    ],
    examples: ['broker reap --dry-run', 'broker reap'],
    run: async (_argument, flags) => (await import('./reap.ts')).reap(flags),
  },
  {
    name: 'check',
    description: 'may this path be removed? 0 free, 1 busy with the reasons on stderr',
    argument: { name: '<path>', help: 'the directory; all below it counts too' },
    flags: [],
    examples: ['broker check ../feature && git worktree remove ../feature'],
    run: async (path = '') => (await import('./check.ts')).check(path),
  },
  {
    name: 'doctor',
    description: 'look at folders, limits and records, and say what to do',
    flags: [JSON_FLAG],
    examples: ['broker doctor'],
    run: async (_argument, flags) => (await import('./doctor.ts')).doctor(flags),
  },
  {
    name: 'hook',
    description: 'what Claude Code calls; always exits with 0',
    argument: { name: '<name>', help: 'session-start or session-end' },
    flags: [],
    examples: ['broker hook session-start < input.json'],
    run: async (name = '') => (await import('./hook.ts')).hook(name),
  },
];

/** A plain right call of a simple command, ready to run; undefined for anything else. Pure. */
export function parseSimple(argv: readonly string[]): (() => Promise<number>) | undefined {
  const command = SIMPLE_COMMANDS.find(({ name }) => name === argv[0]);
  if (command === undefined) return undefined;
  const flags: Record<string, boolean> = {};
  const positionals: string[] = [];
  for (const word of argv.slice(1)) {
    const flag = command.flags.find(({ name }) => `--${name}` === word);
    if (flag) flags[toProperty(flag.name)] = true;
    else if (word.startsWith('-') || word === '') return undefined;
    else positionals.push(word);
  }
  const most = command.argument ? 1 : 0;
  const least = command.argument?.name.startsWith('<') ? 1 : 0;
  if (positionals.length > most || positionals.length < least) return undefined;
  return () => command.run(positionals[0], flags);
}

/** `dry-run` as the property `dryRun`, which is what the command library makes of it too. */
function toProperty(name: string): string {
  return name.replace(/-(.)/g, (_match, letter: string) => letter.toUpperCase());
}
