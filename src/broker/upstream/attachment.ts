/**
 * One client bound to its own upstream by a pure pipe: bytes go through untouched, both ways, each
 * side slowing the other. What is not part of the pipe, stderr and how the upstream ended, goes to
 * the client over a second connection.
 */
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { FIXED } from '../../config.ts';
import { BrokerError } from '../../errors.ts';
import type { Connection } from '../../rpc/connection.ts';
import { NOTIFICATIONS } from '../../rpc/control.ts';
import type { ChildExit, Upstream, UpstreamStopReason } from './upstream.ts';

export class Attachment {
  readonly id: string;
  readonly upstream: Upstream;
  readonly #onChange: () => void;
  readonly #onFailures: (failures: unknown[]) => void;
  #socket: Socket | undefined;
  #side: Connection | undefined;
  #announceSide: () => void = () => undefined;
  readonly #sideCame: Promise<void>;
  #stderr: Buffer[] = [];
  #stderrBytes = 0;
  #isClientThere = true;
  #isSurvivor = false;
  #exit: ChildExit | undefined;
  #farewell: Promise<void> | undefined;

  /**
   * @param onChange is called when the client is gone, and again when nothing is left.
   * @param onFailures gets what went wrong while it was stopped.
   */
  constructor(id: string, upstream: Upstream, onChange: () => void, onFailures: (failures: unknown[]) => void) {
    this.id = id;
    this.upstream = upstream;
    this.#onChange = onChange;
    this.#onFailures = onFailures;
    this.#sideCame = new Promise((resolve) => {
      this.#announceSide = resolve;
    });
  }

  /** False from the moment the client closed or half-closed its connection. */
  get isClientThere(): boolean {
    return this.#isClientThere;
  }

  /** Its process withstood the whole ladder: it stays listed, and recorded. */
  get isSurvivor(): boolean {
    return this.#isSurvivor;
  }

  /** Connects the pipes. `rest` is what the client sent behind its attach. */
  bind(socket: Socket, rest: Buffer): void {
    this.#socket = socket;
    const { stdin, stdout, stderr } = this.upstream.process;
    socket.once('end', this.#onClientGone);
    socket.once('close', this.#onClientGone);
    if (socket.destroyed || socket.readableEnded) this.#onClientGone();
    stderr?.on('data', (chunk: Buffer) => this.#onStderr(chunk));
    stdout?.pipe(socket, { end: false });
    // A client that is gone for good must not block what its upstream still writes.
    socket.once('close', () => stdout?.resume());
    if (stdin === null) return;
    if (rest.length > 0) stdin.write(rest);
    // The ladder ends stdin, once it has seen who belongs to the upstream: some are gone the moment it ends.
    socket.pipe(stdin, { end: false });
    // An upstream that closed its stdin hears nothing more; its client must not hang on that.
    stdin.once('close', () => socket.resume());
  }

  /** Binds the second connection and sends what stderr has said so far. */
  bindSide(side: Connection): void {
    this.#side = side;
    for (const chunk of this.#stderr) this.#sendStderr(side, chunk);
    this.#stderr = [];
    this.#stderrBytes = 0;
    this.#announceSide();
  }

  /** Tells the client that the broker leaves. */
  goaway(reason: string): void {
    this.#side?.notify(NOTIFICATIONS.goaway, { reason, retry: true });
  }

  /** The upstream ended by itself: its client hears so before what may be left of its tree is stopped. */
  async onUpstreamExit(exit: ChildExit): Promise<void> {
    this.#exit = exit;
    await this.#sayFarewell();
    await this.close('lost');
  }

  /** Stops the upstream and closes both connections. Idempotent. */
  async close(reason: UpstreamStopReason): Promise<void> {
    // When the upstream has ended by itself its client stays until it has all of the output.
    if (reason !== 'lost') this.#isClientThere = false;
    this.#onChange();
    const failures = await this.upstream.resource.stop(reason);
    this.#isSurvivor ||= failures.some((error) => error instanceof BrokerError && error.code === 'STOP_FAILED');
    this.#onFailures(failures);
    await this.#sayFarewell();
    this.#onChange();
  }

  /** Delivers the last of the output, says how the upstream ended, and ends both connections; once. */
  #sayFarewell(): Promise<void> {
    this.#farewell ??= this.#endInOrder();
    return this.#farewell;
  }

  async #endInOrder(): Promise<void> {
    if (this.upstream.pid !== undefined) await this.#deliverOutput();
    if (this.#isClientThere) await within(FIXED.sideWaitMs, this.#sideCame);
    if (this.#exit) this.#side?.notify(NOTIFICATIONS.exit, this.#exit);
    this.#side?.close();
    if (this.#socket === undefined || this.#socket.destroyed) return;
    this.#socket.resume();
    this.#socket.end(() => this.#socket?.destroy());
  }

  /**
   * Waits until all output is with the client. A slow client gets all of it; but a grandchild may hold
   * the pipes open for ever, so silence with nothing left to deliver is an end too.
   */
  async #deliverOutput(): Promise<void> {
    const { stdout, stderr } = this.upstream.process;
    const isOver = Promise.all([ended(stdout), ended(stderr)]).then(() => true);
    for (let seen = this.#bytesOut(); ; ) {
      if (await Promise.race([isOver, sleep(FIXED.outputTailMs, false)])) return;
      const now = this.#bytesOut();
      const isWaiting = this.#isClientThere && this.#socket?.destroyed === false && this.#socket.writableLength > 0;
      if (now === seen && !isWaiting) return;
      seen = now;
    }
  }

  #bytesOut(): number {
    return (this.#socket?.bytesWritten ?? 0) + this.#stderrBytes + (this.#side?.socket.bytesWritten ?? 0);
  }

  readonly #onClientGone = (): void => {
    if (!this.#isClientThere) return;
    void this.close('closed');
  };

  #onStderr(chunk: Buffer): void {
    if (this.#side?.isOpen) {
      this.#sendStderr(this.#side, chunk);
      return;
    }
    this.#stderr.push(chunk);
    this.#stderrBytes += chunk.length;
    while (this.#stderrBytes > FIXED.stderrRingBytes && this.#stderr.length > 1) {
      this.#stderrBytes -= this.#stderr.shift()?.length ?? 0;
    }
  }

  #sendStderr(side: Connection, chunk: Buffer): void {
    side.notify(NOTIFICATIONS.stderr, { data: chunk.toString('base64') });
    const { stderr } = this.upstream.process;
    if (!side.socket.writableNeedDrain || stderr === null || stderr.isPaused()) return;
    stderr.pause();
    const resume = (): void => {
      side.socket.off('drain', resume);
      side.socket.off('close', resume);
      stderr.resume();
    };
    side.socket.on('drain', resume);
    side.socket.on('close', resume);
  }
}

async function within(ms: number, what: Promise<unknown>): Promise<void> {
  const abort = new AbortController();
  await Promise.race([what, sleep(ms, undefined, { signal: abort.signal }).catch(() => undefined)]);
  abort.abort();
}

function ended(stream: NodeJS.ReadableStream | null): Promise<void> {
  return new Promise((resolve) => {
    if (stream === null || !stream.readable) return resolve();
    stream.once('end', resolve);
    stream.once('close', resolve);
  });
}
