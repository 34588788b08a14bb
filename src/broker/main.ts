/**
 * Entry of the daemon: `brokerd --cwd DIR --instance ID --generation N`. Reads its record, starts
 * the broker, says on descriptor 3 that it is ready, and turns signals and bugs into an ordered end.
 */
import { closeSync, fstatSync, writeSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { type Config, FIXED } from '../config.ts';
import { BrokerError, describeError, errnoOf } from '../errors.ts';
import { createLog, type Log } from '../log.ts';
import { closeInherited } from '../process/detach.ts';
import { openLogFile } from '../registry/log-file.ts';
import { brokerKey, openRuntimeDir, stateLayout } from '../registry/paths.ts';
import type { BrokerRecord, ExitReason } from '../registry/record.ts';
import { readGeneration } from '../registry/records.ts';
import { readConfig } from '../registry/settings.ts';
import { Broker, SupersededError } from './broker.ts';
import { type DueReap, startReap, startReapIfDue } from './crash-reap.ts';

/** EX_SOFTWARE of sysexits: a bug, or a start that could not be. */
const EXIT_BUG = 70;
const READY_FD = 3;

interface Arguments {
  cwd: string;
  instance: string;
  generation: number;
}

/** Runs until the broker has ended; then ends the process. */
export function main(argv: string[]): void {
  // Optimised code is worth its memory (some 4 MB) to a program that computes; this one waits and passes bytes on.
  setFlagsFromString('--no-opt');
  // Handlers first: a library that adds its own later must not be the only one.
  let stop: (reason: 'signal' | 'fatal', detail: string) => void = () => process.exit(EXIT_BUG);
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => stop('signal', signal));
  const onBug = (error: unknown): void => stop('fatal', error instanceof Error ? (error.stack ?? error.message) : String(error));
  process.on('uncaughtException', onBug);
  process.on('unhandledRejection', onBug);
  process.chdir('/');
  closeInherited([READY_FD]);
  void run(argv, (handler) => {
    stop = handler;
  });
}

async function run(
  argv: string[],
  onStop: (handler: (reason: 'signal' | 'fatal', detail: string) => void) => void,
): Promise<void> {
  let log: Log | undefined;
  let dueReap: DueReap | undefined;
  try {
    const args = readArguments(argv);
    const config = readConfig();
    const layout = stateLayout(config.stateDir);
    const key = brokerKey(args.cwd);
    const ownLog = createLog(openLogFile(layout.log(key), config.maxLogBytes).write);
    log = ownLog;
    const record = await readOwnRecord(layout.folder(key), args);
    const runtimeDir = await openRuntimeDir(process.env);
    const end = (reason: ExitReason): void => {
      if (broker.record.children.length > 0) startReap(layout, ownLog);
      else dueReap?.now();
      process.exit(reason === 'fatal' ? EXIT_BUG : 0);
    };
    const broker: Broker = new Broker({
      record,
      key,
      layout,
      runtimeDir,
      config,
      log: ownLog,
      onEnd: end,
    });
    let isDoomed = false;
    onStop((reason, detail) => {
      if (reason === 'fatal') log?.error('bug', { detail });
      broker.stop(reason, detail);
      // A bug may be what keeps the exit from happening; more of them change nothing.
      if (reason === 'fatal' && !isDoomed) setTimeout(() => end('fatal'), config.shutdownMs + 4 * FIXED.exitStepMs).unref();
      isDoomed ||= reason === 'fatal';
    });
    await startWithin(broker, config, ownLog);
    say('ready');
    dueReap = await startReapIfDue(layout, layout.folder(key), record.generation, ownLog);
  } catch (error) {
    if (error instanceof SupersededError) say('superseded');
    else say(`error ${describeError(error).replaceAll('\n', ' ')}`);
    log?.error('start.failed', { message: describeError(error) });
    process.exit(error instanceof SupersededError ? 0 : EXIT_BUG);
  }
}

async function startWithin(broker: Broker, config: Config, log: Log): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new BrokerError('START_TIMEOUT', `not serving after ${config.startMs} ms`)), config.startMs);
  });
  try {
    await Promise.race([broker.start(), late]);
  } catch (error) {
    log.error('start.aborted', { message: describeError(error), errno: errnoOf(error) });
    await broker.abortStart(error instanceof SupersededError ? 'superseded' : 'fatal', describeError(error));
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

function readArguments(argv: string[]): Arguments {
  const { values } = parseArgs({
    args: argv,
    options: { cwd: { type: 'string' }, instance: { type: 'string' }, generation: { type: 'string' } },
  });
  const generation = Number(values.generation);
  if (!values.cwd?.startsWith('/') || !values.instance || !Number.isSafeInteger(generation) || generation < 1) {
    throw new BrokerError('USAGE', 'usage: brokerd --cwd DIR --instance ID --generation N', {
      hint: 'Brokers are started by `broker connect`; there is no need to start one by hand.',
    });
  }
  return { cwd: values.cwd, instance: values.instance, generation };
}

/** The record this process was started for; without one it has no business here. */
async function readOwnRecord(folder: string, args: Arguments): Promise<BrokerRecord> {
  const found = await readGeneration(folder, args.generation);
  if (found?.reading.kind !== 'record' || found.reading.record.instance !== args.instance) {
    throw new BrokerError('NOT_FOUND', `no record of generation ${args.generation} names this run in ${folder}`);
  }
  if (found.reading.record.phase !== 'starting') throw new SupersededError('the record is in use');
  return found.reading.record;
}

/** One line for the starter, if there is one: descriptor 3 is a pipe only when it was given to us. */
function say(line: string): void {
  try {
    const stats = fstatSync(READY_FD);
    if (!stats.isFIFO() && !stats.isSocket()) return;
    writeSync(READY_FD, `${line}\n`);
    closeSync(READY_FD);
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
  }
}
