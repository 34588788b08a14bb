/**
 * The shim: stands in for a server command and passes its bytes through the broker of the directory.
 *
 * Signals are left to the system: they end the shim at once, and the broker sees its socket close.
 * The end of stdin is passed on; what the server still has to say is relayed until it has ended, as
 * in a pipeline without the shim, and so is its exit code. The broker sees to it that it ends.
 */
import { constants } from 'node:os';
import { resolve } from 'node:path';
import { connectBroker, type OpenUpstream, type UpstreamEnd } from '../client/client.ts';
import { FIXED } from '../config.ts';
import { BrokerError, describeError, type ErrorCode, errnoOf } from '../errors.ts';
import type { ConnectRequest } from './connect-arguments.ts';
import { startDirectory } from './context.ts';

/** Who started us, before it can be gone. */
const PARENT = process.ppid;

/** What the broker may take to end our helper once our stdin has ended, and then some. */
const LADDER_MS = FIXED.stopStdinMs + FIXED.stopTermMs + FIXED.stopKillMs + FIXED.outputTailMs;

/** Brokers that leave just as we come are tried again this often. */
const TRIES = 5;

/** @returns the exit code: the command's own, where it is known. */
export async function connect(request: ConnectRequest): Promise<number> {
  try {
    return await runThroughBroker(request);
  } finally {
    // Whoever started us may keep our stdin open; it must not keep us.
    process.stdin.destroy();
  }
}

async function runThroughBroker(request: ConnectRequest): Promise<number> {
  for (let tries = 1; ; tries += 1) {
    let upstream: OpenUpstream;
    try {
      upstream = await open(request);
    } catch (error) {
      if (!mayFallBack(error)) throw error;
      if (hasCode(error, 'CLOSING', 'CONNECTION_CLOSED') && tries < TRIES) continue;
      if (!request.fallback) throw error;
      const { runDirectly } = await import('./fallback.ts');
      note(`no broker (${describeError(error)}); running the command directly`);
      return runDirectly(request);
    }
    const { end, hasForwarded, isInputOver } = await relay(upstream);
    if (end.kind === 'exit') return exitCode(end);
    if (isInputOver) return 0;
    if (!hasForwarded && tries < TRIES) continue;
    note(end.kind === 'goaway' ? `the broker leaves: ${end.goaway.reason}` : 'the connection to the broker is lost');
    return 1;
  }
}

/** Whatever the broker or the system refuses, the command can run without; wrong usage and bugs are told. */
function mayFallBack(error: unknown): boolean {
  return error instanceof BrokerError ? error.code !== 'USAGE' : errnoOf(error) !== undefined;
}

function hasCode(error: unknown, ...codes: ErrorCode[]): boolean {
  return error instanceof BrokerError && codes.includes(error.code);
}

async function open(request: ConnectRequest): Promise<OpenUpstream> {
  const cwd = resolve(startDirectory(), request.cwd ?? '.');
  const client = await connectBroker({ cwd, clientName: request.name ?? 'connect', onNotice: note });
  try {
    const { command, args, name } = request;
    return await client.upstreams.open({ command, args, ...(name !== undefined && { name }) });
  } finally {
    client.close();
  }
}

interface Relayed {
  end: UpstreamEnd;
  /** A byte went through, either way: from here on a new broker would be another conversation. */
  hasForwarded: boolean;
  /** We left because our own side was over. */
  isInputOver: boolean;
}

/** Passes bytes both ways, each side slowing the other, until one of them is over. */
async function relay(upstream: OpenUpstream): Promise<Relayed> {
  const { stdin, stdout, stderr } = process;
  const { stream } = upstream;
  let hasForwarded = false;
  let isInputOver = false;
  let lastByteAt = performance.now();
  const undo: Array<() => void> = [];
  const on = (emitter: NodeJS.EventEmitter, event: string, listener: (...args: never[]) => void): void => {
    emitter.on(event, listener as (...args: unknown[]) => void);
    undo.push(() => emitter.off(event, listener as (...args: unknown[]) => void));
  };
  const forward = (from: NodeJS.ReadableStream, to: NodeJS.WritableStream): void => {
    on(from, 'data', (chunk: Buffer) => {
      hasForwarded = true;
      lastByteAt = performance.now();
      if (!to.write(chunk)) from.pause();
    });
    on(to, 'drain', () => from.resume());
    // Our stdin stands still between two brokers.
    from.resume();
  };
  const leave = (): void => {
    isInputOver = true;
    upstream.close();
  };
  let lastWords: NodeJS.Timeout | undefined;
  const onInputEnd = (): void => {
    isInputOver = true;
    stream.end();
    lastWords ??= setTimeout(leave, LADDER_MS);
  };
  forward(stdin, stream);
  forward(stream, stdout);
  on(stdin, 'end', onInputEnd);
  on(stdin, 'error', onInputEnd);
  on(stdout, 'error', leave);
  on(stderr, 'error', () => undefined);
  on(stream, 'error', () => undefined);
  upstream.stderr.on('data', (chunk: Buffer) => stderr.write(chunk));
  // Somebody else may hold our stdin open after the one who started us is gone.
  const watch = setInterval(() => {
    if (process.ppid !== PARENT && performance.now() - lastByteAt > FIXED.shimOrphanMs) leave();
  }, FIXED.shimOrphanMs / 10);
  undo.push(
    () => clearInterval(watch),
    () => clearTimeout(lastWords),
  );
  const end = await upstream.ended;
  for (const one of undo) one();
  upstream.close();
  stdin.pause();
  return { end, hasForwarded, isInputOver };
}

function exitCode({ exit }: Extract<UpstreamEnd, { kind: 'exit' }>): number {
  if (exit.code !== undefined) return exit.code;
  // As a shell says it of a command that was ended by a signal.
  return 128 + (constants.signals[exit.signal as NodeJS.Signals] ?? 0);
}

function note(line: string): void {
  process.stderr.write(`broker: ${line}\n`);
}
