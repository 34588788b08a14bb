/**
 * One two-way JSON-RPC peer over a stream: newline-delimited frames, pending requests that always
 * settle, and the step from frames to a pure pipe. Requests of the other side are answered one
 * after the other, in the order they came.
 */
import type { Socket } from 'node:net';
import { BrokerError, type BrokerErrorOptions, isErrorCode } from '../errors.ts';
import { LineReader } from './framing.ts';
import {
  BROKER_ERROR,
  INTERNAL_ERROR,
  INVALID_REQUEST,
  isRequest,
  isResponse,
  METHOD_NOT_FOUND,
  PARSE_ERROR,
  parseMessage,
  RpcError,
  type RpcErrorObject,
  type RpcId,
  type RpcMessage,
  type RpcRequest,
  type RpcResponse,
} from './messages.ts';

/** What a request handler answers. `upgrade` takes the stream over once the answer is written. */
export interface Answer {
  result: unknown;
  upgrade?: (rest: Buffer) => void;
}

export interface ConnectionHandlers {
  /** Throw a BrokerError or RpcError for an error answer. */
  onRequest?(method: string, params: unknown): Promise<Answer>;
  onNotification?(method: string, params: unknown): void;
  /** The other side is gone. Called once, also after `close()`, but not after an upgrade. */
  onClose?(): void;
  /** A handler threw something that is no expected error. */
  onBug?(error: unknown): void;
}

interface Pending {
  resolve(value: unknown): void;
  reject(error: unknown): void;
  timer: NodeJS.Timeout | undefined;
  isUpgrade: boolean;
}

/** More unreadable frames than this, and the connection is closed. */
const BAD_FRAMES_ALLOWED = 8;

export class Connection {
  readonly socket: Socket;
  readonly #reader: LineReader;
  readonly #maxQueueBytes: number;
  readonly #handlers: ConnectionHandlers;
  readonly #pending = new Map<RpcId, Pending>();
  #nextId = 1;
  #badFrames = 0;
  #isAnswering = false;
  #isOver = false;

  constructor(socket: Socket, limits: { maxFrameBytes: number; maxQueueBytes: number }, handlers: ConnectionHandlers = {}) {
    this.socket = socket;
    this.#reader = new LineReader(limits.maxFrameBytes);
    this.#maxQueueBytes = limits.maxQueueBytes;
    this.#handlers = handlers;
    socket.on('data', this.#onData);
    socket.on('end', this.#onEnd);
    socket.on('close', this.#onClose);
    // A broken socket says so by its close, which follows every error.
    socket.on('error', () => undefined);
  }

  /** True while frames can be exchanged. */
  get isOpen(): boolean {
    return !this.#isOver;
  }

  /**
   * Asks the other side.
   * @param timeoutMs 0 waits for as long as the connection lives.
   * @throws RpcError as answered; BrokerError as answered by a broker, REQUEST_TIMEOUT, CONNECTION_CLOSED.
   */
  request(method: string, params: unknown, timeoutMs: number): Promise<unknown> {
    return this.#send(method, params, timeoutMs, false);
  }

  /** Asks for something after whose answer the stream is a pure pipe. Resolves with the first bytes behind the answer. */
  async requestUpgrade(method: string, params: unknown, timeoutMs: number): Promise<{ result: unknown; rest: Buffer }> {
    const result = await this.#send(method, params, timeoutMs, true);
    return result as { result: unknown; rest: Buffer };
  }

  notify(method: string, params: unknown): void {
    this.#write({ jsonrpc: '2.0', method, params });
  }

  /** Ends politely: what is queued still goes out. Idempotent. */
  close(): void {
    if (this.#isOver) return;
    this.#finish();
    // A peer that keeps its half open must not keep ours.
    this.socket.end(() => this.socket.destroy());
    this.socket.resume();
  }

  /** Ends at once. Idempotent. */
  destroy(): void {
    this.#finish();
    this.socket.destroy();
  }

  #send(method: string, params: unknown, timeoutMs: number, isUpgrade: boolean): Promise<unknown> {
    if (this.#isOver) return Promise.reject(closedError(method));
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      const timer = timeoutMs > 0 ? setTimeout(() => this.#timeOut(id, method, timeoutMs), timeoutMs) : undefined;
      this.#pending.set(id, { resolve, reject, timer, isUpgrade });
      this.#write({ jsonrpc: '2.0', id, method, params });
    });
  }

  #timeOut(id: RpcId, method: string, timeoutMs: number): void {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    pending?.reject(
      new BrokerError('REQUEST_TIMEOUT', `no answer to ${method} within ${timeoutMs} ms`, { committed: 'unknown' }),
    );
  }

  readonly #onData = (chunk: Buffer): void => {
    // Whoever goes on sending after the end is not listened to, and not stored.
    if (this.#isOver) return;
    this.#reader.push(chunk);
    void this.#pump();
  };

  readonly #onEnd = (): void => {
    // A side that half-closes is gone: nobody asks the broker with a deaf ear.
    this.socket.end();
  };

  readonly #onClose = (): void => this.#finish();

  /** Works through the frames at hand. While one request is being answered the stream is not read on. */
  async #pump(): Promise<void> {
    if (this.#isAnswering) return;
    for (
      let line = this.#reader.read();
      line !== undefined && !this.#isOver;
      line = this.#isOver ? undefined : this.#reader.read()
    ) {
      if (line.kind === 'oversize') {
        this.#rejectFrame(INVALID_REQUEST, `the frame has ${line.length} bytes, more than allowed`);
        continue;
      }
      const message = parseMessage(line.bytes);
      if (message === undefined) this.#rejectFrame(PARSE_ERROR, 'not a JSON-RPC message');
      else if (isResponse(message)) this.#settle(message);
      else if (!isRequest(message)) this.#handlers.onNotification?.(message.method, message.params);
      else await this.#answer(message);
    }
  }

  async #answer(request: RpcRequest): Promise<void> {
    this.#isAnswering = true;
    this.socket.pause();
    try {
      if (this.#handlers.onRequest === undefined)
        throw new RpcError({ code: METHOD_NOT_FOUND, message: 'nothing is answered here' });
      const answer = await this.#handlers.onRequest(request.method, request.params);
      if (this.#isOver) return;
      this.#write({ jsonrpc: '2.0', id: request.id, result: answer.result ?? null });
      if (answer.upgrade) answer.upgrade(this.#release());
    } catch (error) {
      const known = toErrorObject(error);
      this.#write({ jsonrpc: '2.0', id: request.id, error: known ?? { code: INTERNAL_ERROR, message: 'internal error' } });
      if (known === undefined) this.#fail(error);
    } finally {
      this.#isAnswering = false;
      if (!this.#isOver) this.socket.resume();
    }
  }

  /** A bug met while answering costs this one connection. */
  #fail(error: unknown): void {
    this.close();
    this.#handlers.onBug?.(error);
  }

  #settle(response: RpcResponse): void {
    const pending = response.id === null ? undefined : this.#pending.get(response.id);
    if (response.id === null || pending === undefined) return;
    this.#pending.delete(response.id);
    clearTimeout(pending.timer);
    if ('error' in response) pending.reject(fromErrorObject(response.error));
    else if (pending.isUpgrade) pending.resolve({ result: response.result, rest: this.#release() });
    else pending.resolve(response.result);
  }

  #rejectFrame(code: number, message: string): void {
    this.#badFrames += 1;
    this.#write({ jsonrpc: '2.0', id: null, error: { code, message } });
    if (this.#badFrames >= BAD_FRAMES_ALLOWED) this.close();
  }

  #write(message: RpcMessage): void {
    if (this.#isOver || this.socket.destroyed || !this.socket.writable) return;
    this.socket.write(`${JSON.stringify(message)}\n`);
    // Whoever asks and never reads loses the connection, not the broker its memory.
    if (this.socket.writableLength > this.#maxQueueBytes) this.destroy();
  }

  /** Gives the stream away: from here on it is paused, and its bytes are not frames. */
  #release(): Buffer {
    this.#isOver = true;
    this.socket.pause();
    this.socket.off('data', this.#onData);
    this.socket.off('end', this.#onEnd);
    this.socket.off('close', this.#onClose);
    // As if nobody had ever listened: the next listener, pipe or iterator starts the flow. The property is settable, its type only says otherwise.
    (this.socket as { readableFlowing: boolean | null }).readableFlowing = null;
    this.#rejectPending();
    return this.#reader.takeRest();
  }

  #finish(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#rejectPending();
    this.#handlers.onClose?.();
  }

  #rejectPending(): void {
    for (const pending of this.#pending.values()) {
      clearTimeout(pending.timer);
      pending.reject(closedError('the request'));
    }
    this.#pending.clear();
  }
}

/** Our errors as they go over the wire; undefined for a bug. */
function toErrorObject(error: unknown): RpcErrorObject | undefined {
  if (error instanceof RpcError) return { code: error.code, message: error.message, data: error.data };
  if (!(error instanceof BrokerError)) return undefined;
  const { code, fault, retryable, committed, hint } = error;
  return { code: BROKER_ERROR, message: error.message, data: { source: 'broker', code, fault, retryable, committed, hint } };
}

function fromErrorObject(error: RpcErrorObject): Error {
  const data = (error.data ?? {}) as Record<string, unknown>;
  if (error.code !== BROKER_ERROR || data.source !== 'broker') return new RpcError(error);
  if (!isErrorCode(data.code)) return new RpcError(error);
  const { fault, retryable, committed, hint } = data as BrokerErrorOptions;
  return new BrokerError(data.code, error.message, { fault, retryable, committed, hint });
}

function closedError(what: string): BrokerError {
  return new BrokerError('CONNECTION_CLOSED', `the connection closed before ${what} was answered`, { committed: 'unknown' });
}
