/** The command tree: commands load when they run, errors become exit codes. */
import type { Command } from 'commander';
import { BrokerError } from '../errors.ts';
import { VERSION } from '../installation.ts';
import { CONNECT_OPTIONS, parseConnect } from './connect-arguments.ts';
import { renderError } from './render.ts';

/** Runs a command line; never throws. @returns 0 done, 1 failed or busy, 2 usage, 3 nothing there. */
export async function run(argv: string[]): Promise<number> {
  const asJson = argv.includes('--json') && argv[0] !== 'connect';
  try {
    const code = (await runWithoutLibrary(argv)) ?? (await runCommand(argv));
    // Whoever started us may keep our stdin open; it must not keep us.
    process.stdin.destroy();
    return code;
  } catch (error) {
    process.stderr.write(renderError(error, asJson));
    process.stdin.destroy();
    return error instanceof BrokerError && error.code === 'USAGE' ? 2 : 1;
  }
}

/** The two calls that are made all the time start without the command library. */
async function runWithoutLibrary(argv: string[]): Promise<number | undefined> {
  if (argv[0] === 'connect') {
    const request = parseConnect(argv.slice(1));
    return request && (await import('./connect.ts')).connect(request);
  }
  if (argv[0] === 'hook' && argv.length === 2 && !argv[1]?.startsWith('-'))
    return (await import('./hook.ts')).hook(argv[1] as string);
  return undefined;
}

async function runCommand(argv: string[]): Promise<number> {
  const { Command, CommanderError } = await import('commander');
  let code = 0;
  const program = buildProgram(new Command(), (result) => {
    code = result;
  });
  try {
    await program.parseAsync(argv, { from: 'user' });
    return code;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    // Help and version, when asked for, exit with 0; the library's own code for every usage error is 1.
    return error.exitCode === 0 ? 0 : 2;
  }
}

/** Command objects inherit the settings made before they are added, so those come first. */
function buildProgram(program: Command, finish: (code: number) => void): Command {
  program
    .name('broker')
    .description('One daemon per working directory that starts stdio JSON-RPC helpers once and never leaks.')
    .version(VERSION)
    .exitOverride()
    .enablePositionalOptions()
    .showHelpAfterError('(run with --help for usage)');
  addConnect(program, finish);
  addQuestions(program, finish);
  addActions(program, finish);
  return program;
}

/** Runs a command's action and takes its exit code. */
function reporting<A extends unknown[]>(finish: (code: number) => void, action: (...args: A) => Promise<number>) {
  return async (...args: A): Promise<void> => finish(await action(...args));
}

/** Commands that only look. */
function addQuestions(program: Command, finish: (code: number) => void): void {
  program
    .command('ls')
    .description('list every broker, also those of deleted directories')
    .option('--all', 'also show tombstones and the exit history')
    .option('--cost', 'show CPU and memory of each broker with all it runs')
    .option('--watch', 'show again whenever something changes')
    .option('--json', 'print JSON')
    .action(reporting(finish, async (options) => (await import('./ls.ts')).ls(options)))
    .addHelpText('after', examples('broker ls', 'broker ls --cost', 'broker ls --json | jq ".[].cwd"'));
  program
    .command('status')
    .description('one broker: who uses it, why it is still up, when it would exit, what it costs')
    .argument('[cwd]', 'the directory (default: the current one)')
    .option('--json', 'print JSON')
    .action(reporting(finish, async (cwd, options) => (await import('./status.ts')).status(cwd, options)))
    .addHelpText('after', examples('broker status', 'broker status ~/work/app --json'));
  program
    .command('logs')
    .description("a broker's log")
    .argument('[cwd]', 'the directory (default: the current one)')
    .option('-f, --follow', 'print what is added, until interrupted')
    .option('-n, --lines <N>', 'how many lines from the end', '50')
    .action(reporting(finish, async (cwd, options) => (await import('./logs.ts')).logs(cwd, options)))
    .addHelpText('after', examples('broker logs', 'broker logs -f', 'broker logs -n 200 ~/work/app'));
}

/** Commands that end something, or that another program calls. */
function addActions(program: Command, finish: (code: number) => void): void {
  program
    .command('stop')
    .description('end a broker with all it runs; nothing there is success')
    .argument('[cwd]', 'the directory (default: the current one)')
    .option('--all', 'every broker')
    .option('--force', 'also one that does not answer: SIGTERM, then SIGKILL, on a verified identity')
    .option('--json', 'print JSON')
    .action(reporting(finish, async (cwd, options) => (await import('./stop.ts')).stop(cwd, options)))
    .addHelpText('after', examples('broker stop', 'broker stop --all', 'broker stop --force ~/work/app'));
  program
    .command('reap')
    .description('clean up after brokers that are dead or whose directory is gone')
    .option('--dry-run', 'say what would be done, and do nothing')
    .option('--quiet', 'print nothing')
    .option('--json', 'print JSON')
    .action(reporting(finish, async (options) => (await import('./reap.ts')).reap(options)))
    .addHelpText('after', examples('broker reap --dry-run', 'broker reap'));
  program
    .command('check')
    .description('may this path be removed? 0 free, 1 busy with the reasons on stderr')
    .argument('<path>', 'the directory; all below it counts too')
    .action(reporting(finish, async (path) => (await import('./check.ts')).check(path)))
    .addHelpText('after', examples('broker check ../feature && git worktree remove ../feature'));
  program
    .command('doctor')
    .description('look at folders, limits and records, and say what to do')
    .option('--json', 'print JSON')
    .action(reporting(finish, async (options) => (await import('./doctor.ts')).doctor(options)))
    .addHelpText('after', examples('broker doctor'));
  program
    .command('hook')
    .description('what Claude Code calls; always exits with 0')
    .argument('<name>', 'session-start or session-end')
    .action(reporting(finish, async (name) => (await import('./hook.ts')).hook(name)))
    .addHelpText('after', examples('broker hook session-start < input.json'));
}

function addConnect(program: Command, finish: (code: number) => void): void {
  const command = program
    .command('connect')
    .description("run a stdio server through this directory's broker, which is started if needed")
    .usage('[options] -- CMD [ARGS…]')
    .argument('<cmd...>', 'the server command and its arguments')
    .passThroughOptions()
    .addHelpText(
      'after',
      examples('broker connect -- npx -y some-mcp-server', 'broker connect --name docs --cwd ~/work/app -- my-server --stdio'),
    );
  for (const { name, value, help } of CONNECT_OPTIONS) command.option(value ? `--${name} <${value}>` : `--${name}`, help);
  command.action(async ([first = '', ...args]: string[], options: { cwd?: string; name?: string; fallback: boolean }) => {
    const { connect } = await import('./connect.ts');
    finish(await connect({ ...options, command: first, args }));
  });
}

function examples(...lines: string[]): string {
  return `\nExamples:\n${lines.map((line) => `  $ ${line}\n`).join('')}`;
}
