/** Answers the `broker/*` methods on one connection: hello first, then attach, stderr or questions. */
import type { Socket } from 'node:net';
import type { Config } from '../config.ts';
import { BrokerError, describeError, errnoOf } from '../errors.ts';
import { markerNames } from '../process/tree.ts';
import type { BrokerRecord } from '../registry/record.ts';
import { type Answer, Connection } from '../rpc/connection.ts';
import {
  type AttachParams,
  type DirectoryView,
  type HelloParams,
  type HelloResult,
  METHODS,
  NOTIFICATIONS,
  PROTOCOL,
  type ShutdownParams,
  type ShutdownResult,
  type StatusResult,
  type StderrParams,
} from '../rpc/control.ts';
import { METHOD_NOT_FOUND, RpcError } from '../rpc/messages.ts';
import type { Attachment } from './upstream/attachment.ts';
import type { Pool } from './upstream/pool.ts';

/** What a connection needs of the broker behind it. */
export interface ControlHost {
  readonly record: Readonly<BrokerRecord>;
  readonly config: Config;
  readonly pool: Pool;
  /** Throws CLOSING when nobody may be let in, after a look at the registry and, when the views differ, at the directory. */
  admit(view: DirectoryView | undefined): Promise<void>;
  status(): Promise<StatusResult>;
  requestStop(reason: 'requested' | 'cwd-gone'): void;
  onHoldGivenBack(): Promise<void>;
  onBug(error: unknown): void;
  /** Called after anything that may matter for the broker's end. */
  onChange(): void;
}

export interface ClientInfo {
  pid: number;
  name: string;
  /** Epoch ms. */
  sinceAt: number;
  /** Monotonic ms. */
  helloAt: number;
  /** It descends from a child of this very broker, and so does not keep it up. */
  isOwn: boolean;
}

export class ControlConnection {
  readonly #host: ControlHost;
  readonly #connection: Connection;
  readonly #onClose: () => void;
  readonly #silence: NodeJS.Timeout;
  #client: ClientInfo | undefined;
  #attachment: Attachment | undefined;
  /** An attach is under way: the client counts as attached before it is. */
  #isAttaching = false;
  /** Asked the broker something else than to attach: a control connection keeps nothing up. */
  #isControl = false;
  /** Carries the stderr of an attachment, which says its own goodbye. */
  #isSide = false;

  constructor(host: ControlHost, socket: Socket, onClose: () => void) {
    this.#host = host;
    this.#onClose = onClose;
    this.#connection = new Connection(socket, host.config, {
      onRequest: (method, params) => this.#answer(method, params).catch(rethrowAsAnswer),
      onClose: () => this.#closed(),
      onBug: (error) => host.onBug(error),
    });
    this.#silence = setTimeout(() => this.#endSilence(), host.config.silentMs);
    socket.once('close', () => this.#closed());
  }

  get client(): ClientInfo | undefined {
    return this.#client;
  }

  /** The upstream this client is bound to, while the client is there. */
  get attachedTo(): string | undefined {
    return this.#attachment?.isClientThere ? this.#attachment.id : undefined;
  }

  get isAttached(): boolean {
    return this.#isAttaching || this.attachedTo !== undefined;
  }

  /** True for a client that said hello and may attach any moment. */
  get isUndecided(): boolean {
    return this.#client !== undefined && !this.#isControl && !this.isAttached && this.#attachment === undefined;
  }

  goaway(reason: string): void {
    if (!this.#connection.isOpen || this.#isSide) return;
    this.#connection.notify(NOTIFICATIONS.goaway, { reason, retry: true });
    this.#connection.close();
  }

  async #answer(method: string, params: unknown): Promise<Answer> {
    if (method === METHODS.hello) return { result: await this.#hello(params) };
    if (this.#client === undefined)
      throw new BrokerError('NOT_OWNER', 'say hello first', { hint: `The first frame is ${METHODS.hello}.` });
    if (method === METHODS.attach) return this.#attach(params);
    this.#isControl = true;
    this.#host.onChange();
    switch (method) {
      case METHODS.stderr:
        return { result: this.#bindStderr(params) };
      case METHODS.status:
        return { result: await this.#host.status() };
      case METHODS.shutdown:
        this.#host.requestStop((params as ShutdownParams | undefined)?.reason === 'cwd-gone' ? 'cwd-gone' : 'requested');
        return { result: { phase: 'draining' } satisfies ShutdownResult };
      case METHODS.unhold:
        await this.#host.onHoldGivenBack();
        return { result: {} };
      default:
        throw new RpcError({ code: METHOD_NOT_FOUND, message: `no such method: ${method}` });
    }
  }

  async #hello(params: unknown): Promise<HelloResult> {
    const hello = checkHello(params);
    const { record } = this.#host;
    if (hello.token !== record.token) throw new BrokerError('NOT_OWNER', 'the token is not the one in the record');
    if (hello.protocol !== PROTOCOL) {
      throw new BrokerError('PROTOCOL_MISMATCH', `this broker speaks protocol ${PROTOCOL}, the client ${hello.protocol}`);
    }
    clearTimeout(this.#silence);
    // Counted before anything is awaited: an exit that is being decided must see this client.
    this.#isControl ||= hello.control === true;
    this.#client ??= {
      pid: hello.client.pid,
      name: hello.client.name,
      sinceAt: Date.now(),
      helloAt: performance.now(),
      isOwn: markerNames(hello.marker, record.instance),
    };
    this.#host.onChange();
    try {
      await this.#host.admit(hello.cwd);
    } catch (error) {
      this.#isControl = true;
      this.#host.onChange();
      throw error;
    }
    return {
      instance: record.instance,
      generation: record.generation,
      protocol: PROTOCOL,
      version: record.version,
      cwd: record.cwd.path,
      phase: record.phase,
    };
  }

  async #attach(params: unknown): Promise<Answer> {
    const attach = checkAttach(params);
    if (this.#attachment || this.#isControl) throw new BrokerError('INVALID_PARAMS', 'this connection has another use already');
    this.#isAttaching = true;
    this.#host.onChange();
    try {
      await this.#host.admit(undefined);
      const attachment = await this.#host.pool.attach(attach);
      if (!this.#connection.isOpen) {
        // The client went while its upstream started: nobody else would ever let go of it.
        await attachment.close('closed');
        throw new BrokerError('CONNECTION_CLOSED', 'the client is gone');
      }
      this.#attachment = attachment;
      return {
        result: { attachment: attachment.id, wire: 'bytes' },
        upgrade: (rest) => attachment.bind(this.#connection.socket, rest),
      };
    } finally {
      this.#isAttaching = false;
      this.#host.onChange();
    }
  }

  #bindStderr(params: unknown): Record<string, never> {
    const { attachment } = (params ?? {}) as Partial<StderrParams>;
    const found = typeof attachment === 'string' ? this.#host.pool.find(attachment) : undefined;
    if (found === undefined) throw new BrokerError('NOT_FOUND', `no attachment ${JSON.stringify(attachment)}`);
    this.#isSide = true;
    // The answer goes first: what stderr has said follows it.
    queueMicrotask(() => setImmediate(() => found.bindSide(this.#connection)));
    return {};
  }

  /** After a gap the hello may have come unread: it is let in before the client is judged. */
  #endSilence(): void {
    setImmediate(() =>
      setImmediate(() => {
        if (this.#client === undefined) this.#connection.destroy();
      }),
    );
  }

  #closed(): void {
    clearTimeout(this.#silence);
    // A client that closed while its upstream started: nobody is left to bind it to.
    if (this.#attachment?.isClientThere) void this.#attachment.close('closed');
    this.#onClose();
  }
}

/** What the system refuses (no descriptor, no memory, no permission) is an answer for the one who asked, not the end of the broker. */
function rethrowAsAnswer(error: unknown): never {
  if (error instanceof BrokerError || error instanceof RpcError || errnoOf(error) === undefined) throw error;
  throw new BrokerError('UNAVAILABLE', describeError(error), { cause: error });
}

function checkHello(params: unknown): HelloParams {
  const hello = (params ?? {}) as Partial<HelloParams>;
  const isRight =
    typeof hello.protocol === 'number' &&
    typeof hello.token === 'string' &&
    typeof hello.client?.name === 'string' &&
    Number.isSafeInteger(hello.client.pid) &&
    (hello.marker === undefined || typeof hello.marker === 'string') &&
    (hello.cwd === undefined || isDirectoryView(hello.cwd));
  if (!isRight) throw new BrokerError('INVALID_PARAMS', 'hello needs protocol, token and client {name, version, pid}');
  return hello as HelloParams;
}

function isDirectoryView(value: unknown): value is DirectoryView {
  const view = (typeof value === 'object' && value !== null ? value : {}) as Partial<DirectoryView>;
  return [view.dev, view.ino, view.birthtimeNs].every((one) => typeof one === 'string');
}

function checkAttach(params: unknown): AttachParams {
  const attach = (params ?? {}) as Partial<AttachParams>;
  const isText = (value: unknown): boolean => typeof value === 'string' && !value.includes('\0');
  const isRight =
    isText(attach.command) &&
    attach.command !== '' &&
    Array.isArray(attach.args) &&
    attach.args.every(isText) &&
    typeof attach.env === 'object' &&
    attach.env !== null &&
    Object.entries(attach.env).every(([name, value]) => name !== '' && !name.includes('=') && isText(name) && isText(value)) &&
    (attach.name === undefined || isText(attach.name));
  if (!isRight)
    throw new BrokerError('INVALID_PARAMS', 'attach needs command, args (a list of strings) and env (strings by name)');
  if (attach.sharing !== undefined && attach.sharing !== 'isolated') {
    throw new BrokerError('INVALID_PARAMS', `this version runs every upstream isolated, not ${JSON.stringify(attach.sharing)}`);
  }
  return attach as AttachParams;
}
