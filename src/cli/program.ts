/** The command tree: commands load when they run, errors become exit codes. */
import type { Command } from 'commander';
import { BrokerError } from '../errors.ts';
import { VERSION } from '../installation.ts';
import { parseSimple, SIMPLE_COMMANDS, type SimpleCommand } from './commands.ts';
import { CONNECT_OPTIONS, parseConnect } from './connect-arguments.ts';
import { tolerateClosedOutput } from './context.ts';
import { renderError } from './render.ts';

/** Runs a command line; never throws. @returns 0 done, 1 failed or busy, 2 usage, 3 nothing there. */
export async function run(argv: string[]): Promise<number> {
  const asJson = argv.includes('--json') && argv[0] !== 'connect';
  try {
    return (await runWithoutLibrary(argv)) ?? (await runCommand(argv));
  } catch (error) {
    process.stderr.write(renderError(error, asJson));
    return error instanceof BrokerError && error.code === 'USAGE' ? 2 : 1;
  }
}

/** A plain right call starts without the command library; help, mistakes and options with values need it. */
async function runWithoutLibrary(argv: string[]): Promise<number | undefined> {
  if (argv[0] !== 'connect') return parseSimple(argv)?.();
  const request = parseConnect(argv.slice(1));
  return request && (await import('./connect.ts')).connect(request);
}

async function runCommand(argv: string[]): Promise<number> {
  const { Command, CommanderError } = await import('commander');
  tolerateClosedOutput();
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
    .description('One daemon per working directory that starts and supervises stdio JSON-RPC helpers, and never leaks.')
    .version(VERSION)
    .exitOverride()
    .enablePositionalOptions()
    .showHelpAfterError('(run with --help for usage)');
  addConnect(program, finish);
  for (const command of SIMPLE_COMMANDS) addSimple(program, command, finish);
  addLogs(program, finish);
  return program;
}

function addSimple(program: Command, simple: SimpleCommand, finish: (code: number) => void): void {
  const command = program.command(simple.name).description(simple.description).addHelpText('after', examples(simple.examples));
  if (simple.argument) command.argument(simple.argument.name, simple.argument.help);
  for (const { name, help } of simple.flags) command.option(`--${name}`, help);
  command.action(async () => finish(await simple.run(command.args[0], command.opts())));
}

function addLogs(program: Command, finish: (code: number) => void): void {
  program
    .command('logs')
    .description("a broker's log")
    .argument('[cwd]', 'the directory (default: the current one)')
    .option('-f, --follow', 'print what is added, until interrupted')
    .option('-n, --lines <N>', 'how many lines from the end', '50')
    .addHelpText('after', examples(['broker logs', 'broker logs -f', 'broker logs -n 200 ~/work/app']))
    .action(async (cwd, options) => finish(await (await import('./logs.ts')).logs(cwd, options)));
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
      examples(['broker connect -- npx -y some-mcp-server', 'broker connect --name docs --cwd ~/work/app -- my-server --stdio']),
    );
  for (const { name, value, help } of CONNECT_OPTIONS) command.option(value ? `--${name} <${value}>` : `--${name}`, help);
  command.action(async ([first = '', ...args]: string[], options: { cwd?: string; name?: string; fallback: boolean }) => {
    const { connect } = await import('./connect.ts');
    finish(await connect({ ...options, command: first, args }));
  });
}

function examples(lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  $ ${line}\n`).join('')}`;
}
