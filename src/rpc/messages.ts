/** JSON-RPC message types, their recognition, and our one error number. */

export type RpcId = number | string;

export interface RpcRequest {
  jsonrpc: '2.0';
  id: RpcId;
  method: string;
  params?: unknown;
}

export interface RpcNotification {
  jsonrpc: '2.0';
  method: string;
  params?: unknown;
}

export interface RpcErrorObject {
  code: number;
  message: string;
  data?: unknown;
}

export type RpcResponse = { jsonrpc: '2.0'; id: RpcId | null } & ({ result: unknown } | { error: RpcErrorObject });

export type RpcMessage = RpcRequest | RpcNotification | RpcResponse;

/** What the standard says of the caller's own message: https://www.jsonrpc.org/specification#error_object */
export const PARSE_ERROR = -32700;
export const INVALID_REQUEST = -32600;
export const METHOD_NOT_FOUND = -32601;
export const INTERNAL_ERROR = -32603;
/** Every other error of ours. Outside the reserved band, where an upstream's own meanings live. */
export const BROKER_ERROR = -31000;

/** An error answer as it came over the wire. */
export class RpcError extends Error {
  override readonly name = 'RpcError';
  readonly code: number;
  readonly data: unknown;

  constructor(error: RpcErrorObject) {
    super(error.message);
    this.code = error.code;
    this.data = error.data;
  }
}

/** Reads one frame; undefined when it is not a JSON-RPC message with an id we can answer. */
export function parseMessage(frame: Buffer): RpcMessage | undefined {
  let value: unknown;
  try {
    value = JSON.parse(frame.toString('utf8'));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const { id, method } = value as Record<string, unknown>;
  if (typeof method === 'string') return id === undefined || isId(id) ? (value as RpcRequest | RpcNotification) : undefined;
  const { error } = value as Record<string, unknown>;
  const isAnswer = error === undefined ? 'result' in value : isErrorObject(error);
  return (isId(id) || id === null) && isAnswer ? (value as RpcResponse) : undefined;
}

export function isRequest(message: RpcMessage): message is RpcRequest {
  return 'method' in message && 'id' in message;
}

export function isResponse(message: RpcMessage): message is RpcResponse {
  return !('method' in message);
}

function isErrorObject(value: unknown): value is RpcErrorObject {
  if (typeof value !== 'object' || value === null) return false;
  const { code, message } = value as Partial<RpcErrorObject>;
  return Number.isSafeInteger(code) && typeof message === 'string';
}

function isId(value: unknown): value is RpcId {
  return typeof value === 'string' || (typeof value === 'number' && Number.isSafeInteger(value));
}
