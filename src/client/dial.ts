/** Connects to the socket a record names and says hello: the only proof that a broker lives. */
import { createConnection, type Socket } from 'node:net';
import type { Config } from '../config.ts';
import { BrokerError, errnoOf } from '../errors.ts';
import { VERSION } from '../installation.ts';
import { MARKER_VARIABLE } from '../process/tree.ts';
import type { DirectoryIdentity } from '../registry/directory.ts';
import type { BrokerRecord } from '../registry/record.ts';
import { Connection } from '../rpc/connection.ts';
import { type HelloParams, type HelloResult, METHODS, PROTOCOL } from '../rpc/control.ts';

/** How a dial ended. */
export type DialOutcome =
  | { kind: 'ok'; connection: Connection; hello: HelloResult }
  /** No socket there, or nobody behind it: ENOENT, ECONNREFUSED. */
  | { kind: 'absent'; errno: string }
  /** Alive, with a full backlog, or connected and gone before an answer. */
  | { kind: 'busy'; errno: string }
  /** Connected, and no answer to hello in time. */
  | { kind: 'silent' }
  /** It answered that it takes nobody any more. */
  | { kind: 'closing'; error: BrokerError }
  /** It answered with something else: another protocol, or a stranger on our path. */
  | { kind: 'refused'; error: Error };

export interface DialRequest {
  record: Pick<BrokerRecord, 'socket' | 'token' | 'instance'>;
  config: Pick<Config, 'dialMs' | 'helloMs' | 'maxFrameBytes' | 'maxQueueBytes'>;
  clientName: string;
  /** It will not attach: a question, a stop, the stderr of an attachment. */
  isControl: boolean;
  /** The cwd as this client sees it. */
  view?: DirectoryIdentity;
  onNotification?: (method: string, params: unknown) => void;
}

/** Dials once. Bounded by `dialMs` + `helloMs`; never throws for what a broker may do. */
export async function dial(request: DialRequest): Promise<DialOutcome> {
  const { record, config } = request;
  const connected = await connect(record.socket, config.dialMs);
  if (!('socket' in connected)) return connected;
  const connection = new Connection(connected.socket, config, {
    ...(request.onNotification && { onNotification: request.onNotification }),
  });
  try {
    const hello = (await connection.request(METHODS.hello, helloParams(request), config.helloMs)) as HelloResult;
    if (hello?.instance === record.instance) return { kind: 'ok', connection, hello };
    connection.destroy();
    return { kind: 'refused', error: new BrokerError('NOT_OWNER', `another broker answered at ${record.socket}`) };
  } catch (error) {
    connection.destroy();
    return classify(error);
  }
}

function helloParams(request: DialRequest): HelloParams {
  const marker = process.env[MARKER_VARIABLE];
  return {
    protocol: PROTOCOL,
    token: request.record.token,
    client: { name: request.clientName, version: VERSION, pid: process.pid },
    ...(request.isControl && { control: true }),
    ...(request.view && { cwd: request.view }),
    ...(marker && { marker }),
  };
}

function classify(error: unknown): DialOutcome {
  if (!(error instanceof BrokerError)) return { kind: 'refused', error: error as Error };
  switch (error.code) {
    case 'REQUEST_TIMEOUT':
      return { kind: 'silent' };
    case 'CONNECTION_CLOSED':
      return { kind: 'busy', errno: 'ECONNRESET' };
    case 'CLOSING':
      return { kind: 'closing', error };
    default:
      return { kind: 'refused', error };
  }
}

type Connected = { socket: Socket } | Extract<DialOutcome, { kind: 'absent' | 'busy' | 'silent' }>;

function connect(path: string, deadlineMs: number): Promise<Connected> {
  return new Promise((resolve) => {
    const socket = createConnection(path);
    const timer = setTimeout(() => {
      socket.destroy();
      resolve({ kind: 'silent' });
    }, deadlineMs);
    socket.once('connect', () => {
      clearTimeout(timer);
      socket.removeAllListeners('error');
      resolve({ socket });
    });
    socket.once('error', (error) => {
      clearTimeout(timer);
      const errno = errnoOf(error) ?? 'EUNKNOWN';
      // A full backlog is EAGAIN: somebody is there. Only a missing or unheard socket is absence.
      resolve({ kind: errno === 'ENOENT' || errno === 'ECONNREFUSED' ? 'absent' : 'busy', errno });
    });
  });
}
