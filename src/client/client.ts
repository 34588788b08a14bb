/**
 * A client of one directory's broker: typed questions, and upstreams to talk to. What a tool that
 * embeds the library uses, and what the shim is built on.
 */
import type { Socket } from 'node:net';
import type { PassThrough, Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Config, FIXED } from '../config.ts';
import { BrokerError } from '../errors.ts';
import type { BrokerRecord } from '../registry/record.ts';
import { readConfig } from '../registry/settings.ts';
import type { Connection } from '../rpc/connection.ts';
import {
  type AttachParams,
  type AttachResult,
  type ExitNotice,
  type GoawayNotice,
  type HelloResult,
  METHODS,
  NOTIFICATIONS,
  type StatusResult,
  type StderrData,
} from '../rpc/control.ts';
import { askShutdown, askStatus, CONTROL_MS } from './control-calls.ts';
import { dial } from './dial.ts';
import { type EnsuredBroker, ensureBroker } from './ensure.ts';

/** Between two tries for a second connection, ms. */
const RETRY_MS = 10;

export interface ConnectOptions {
  /** The directory; any spelling of it. */
  cwd: string;
  /** Where knobs come from; default: this process's environment. */
  env?: Readonly<Record<string, string | undefined>>;
  /** Shown in `broker status`. Default: `library`. */
  clientName?: string;
  /** Gets a line when connecting takes long. */
  onNotice?: (line: string) => void;
}

export interface OpenOptions {
  command: string;
  args?: readonly string[];
  /** The upstream's whole environment. Default: this process's. */
  env?: Readonly<Record<string, string>>;
  /** Shown in `broker ls`. */
  name?: string;
}

/** How an upstream ended, or that the broker is leaving and took it along. */
export type UpstreamEnd = { kind: 'exit'; exit: ExitNotice } | { kind: 'goaway'; goaway: GoawayNotice } | { kind: 'lost' };

/** An upstream of one's own. Bytes go both ways through `stream`, untouched. */
export interface OpenUpstream {
  /** Of this connection, within the broker's life. */
  id: string;
  stream: Socket;
  /** What the upstream writes to stderr. */
  stderr: Readable;
  /** Settles once, after the stream has ended. Never rejects. */
  ended: Promise<UpstreamEnd>;
  /** Lets go of it; the broker stops it. Idempotent. */
  close(): void;
}

/**
 * Connects to the broker of a directory, starting one if there is none.
 * @throws BrokerError as `ensureBroker` documents.
 */
export async function connectBroker(options: ConnectOptions): Promise<BrokerClient> {
  const config = readConfig(options.env);
  const clientName = options.clientName ?? 'library';
  const ensured = await ensureBroker({
    cwd: options.cwd,
    config,
    clientName,
    ...(options.env && { env: options.env }),
    ...(options.onNotice && { onNotice: options.onNotice }),
  });
  return new BrokerClient(ensured, config, clientName, options.env ?? process.env);
}

export class BrokerClient {
  readonly hello: HelloResult;
  readonly #record: BrokerRecord;
  readonly #view: EnsuredBroker['view'];
  readonly #config: Config;
  readonly #clientName: string;
  readonly #env: Readonly<Record<string, string | undefined>>;
  /** A greeted connection that nothing has been asked on. */
  #spare: Connection | undefined;
  #control: Connection | undefined;

  constructor(ensured: EnsuredBroker, config: Config, clientName: string, env: Readonly<Record<string, string | undefined>>) {
    this.hello = ensured.hello;
    this.#record = ensured.record;
    this.#view = ensured.view;
    this.#spare = ensured.connection;
    this.#config = config;
    this.#clientName = clientName;
    this.#env = env;
  }

  readonly upstreams = {
    /**
     * Starts an upstream for this client alone.
     * @throws BrokerError CLOSING when the broker is leaving (connect anew), LIMIT_EXCEEDED, NOT_FOUND,
     *   UPSTREAM_START_FAILED, STORE_FAILED, CONNECTION_CLOSED, REQUEST_TIMEOUT.
     */
    open: (options: OpenOptions): Promise<OpenUpstream> => this.#open(options),
  };

  /** What the broker does and why it is up. Never starts anything, never keeps it up. */
  async status(): Promise<StatusResult> {
    return askStatus(await this.#controlConnection());
  }

  /** Asks the broker to end, with everything it runs. Resolves when it has agreed, not when it is gone. */
  async shutdown(): Promise<void> {
    await askShutdown(await this.#controlConnection());
  }

  /** Closes this client's own connections; upstreams that are open stay until they are closed. Idempotent. */
  close(): void {
    this.#spare?.close();
    this.#control?.close();
    this.#spare = undefined;
    this.#control = undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async #controlConnection(): Promise<Connection> {
    if (!this.#control?.isOpen) this.#control = await this.#dial(true);
    return this.#control;
  }

  async #open(options: OpenOptions): Promise<OpenUpstream> {
    const params: AttachParams = {
      command: options.command,
      args: [...(options.args ?? [])],
      env: options.env ?? withoutUndefined(this.#env),
      ...(options.name !== undefined && { name: options.name }),
    };
    const connection = await this.#greeted();
    try {
      const { result, rest } = await connection.requestUpgrade(METHODS.attach, params, this.#config.startMs);
      return await this.#bind((result as AttachResult).attachment, connection.socket, rest);
    } catch (error) {
      connection.destroy();
      throw error;
    }
  }

  /** The stderr connection comes second; how the upstream ended is told there. */
  async #bind(id: string, stream: Socket, rest: Buffer): Promise<OpenUpstream> {
    if (rest.length > 0) stream.unshift(rest);
    const stderr = new (process.getBuiltinModule('node:stream').PassThrough)();
    let end: UpstreamEnd = { kind: 'lost' };
    const side = await this.#dialWhile(stream, (method, params) => {
      if (method === NOTIFICATIONS.stderr) writeBounded(stderr, Buffer.from((params as StderrData).data, 'base64'));
      // The broker stops the upstream when it leaves: that end says less than the goaway before it.
      else if (method === NOTIFICATIONS.exit && end.kind !== 'goaway') end = { kind: 'exit', exit: params as ExitNotice };
      else if (method === NOTIFICATIONS.goaway) end = { kind: 'goaway', goaway: params as GoawayNotice };
    });
    const ended = Promise.all([closed(stream), closed(side.socket)]).then(() => {
      stderr.end();
      return end;
    });
    try {
      await side.request(METHODS.stderr, { attachment: id }, CONTROL_MS);
    } catch (error) {
      side.destroy();
      throw error;
    }
    const close = (): void => {
      stream.destroy();
      side.destroy();
    };
    return { id, stream, stderr, ended, close };
  }

  /**
   * As `#dial`, for as long as `stream` lives: a broker that was about to leave when we attached
   * hides its socket for a moment before it stays after all.
   */
  async #dialWhile(stream: Socket, onNotification: (method: string, params: unknown) => void): Promise<Connection> {
    const until = performance.now() + this.#config.helloMs;
    for (;;) {
      try {
        return await this.#dial(true, onNotification);
      } catch (error) {
        if (stream.destroyed || performance.now() > until) throw error;
        await sleep(RETRY_MS);
      }
    }
  }

  /** A connection that may attach: the one from connecting, if nobody has used it, else another. */
  async #greeted(): Promise<Connection> {
    const spare = this.#spare;
    this.#spare = undefined;
    return spare?.isOpen ? spare : this.#dial(false);
  }

  async #dial(isControl: boolean, onNotification?: (method: string, params: unknown) => void): Promise<Connection> {
    const dialed = await dial({
      record: this.#record,
      config: this.#config,
      clientName: this.#clientName,
      isControl,
      view: this.#view,
      ...(onNotification && { onNotification }),
    });
    if (dialed.kind === 'ok') return dialed.connection;
    if (dialed.kind === 'closing') throw dialed.error;
    throw new BrokerError('CLOSING', `the broker of ${this.hello.cwd} does not answer any more (${dialed.kind})`, {
      hint: 'Connect anew.',
    });
  }
}

function withoutUndefined(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return Object.fromEntries(Object.entries(env).filter((pair): pair is [string, string] => pair[1] !== undefined));
}

/** Resolves when a socket is closed, however that came. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.closed) resolve();
    else socket.once('close', () => resolve());
  });
}

/** While nobody reads what an upstream says on stderr, the oldest of it is dropped. */
function writeBounded(stderr: PassThrough, chunk: Buffer): void {
  while (stderr.readableFlowing !== true && stderr.readableLength + stderr.writableLength > FIXED.stderrRingBytes) {
    if (stderr.read() === null) break;
  }
  stderr.write(chunk);
}
