/**
 * The one class of expected errors and its closed list of codes. Anything thrown that is not a
 * BrokerError is a bug.
 */

/** Whose mistake it was: the caller's, ours (or the machine's), or the helper server's. */
export type Fault = 'client' | 'server' | 'upstream';

/** Whether the failed operation may have taken effect. */
export type Committed = 'no' | 'unknown' | 'yes';

const CODES = {
  UNREACHABLE: { fault: 'server', retryable: true },
  START_TIMEOUT: { fault: 'server', retryable: true },
  PROTOCOL_MISMATCH: { fault: 'client', retryable: false },
  NOT_OWNER: { fault: 'client', retryable: false },
  PATH_TOO_LONG: { fault: 'client', retryable: false },
  CLOSING: { fault: 'server', retryable: true },
  CONNECTION_CLOSED: { fault: 'server', retryable: true },
  REQUEST_TIMEOUT: { fault: 'server', retryable: true },
  LIMIT_EXCEEDED: { fault: 'client', retryable: true },
  INVALID_PARAMS: { fault: 'client', retryable: false },
  UNAVAILABLE: { fault: 'server', retryable: true },
  NOT_FOUND: { fault: 'client', retryable: false },
  NOT_READY: { fault: 'server', retryable: true },
  UPSTREAM_START_FAILED: { fault: 'upstream', retryable: false },
  STOP_FAILED: { fault: 'server', retryable: true },
  STORE_FAILED: { fault: 'server', retryable: true },
  USAGE: { fault: 'client', retryable: false },
} as const satisfies Record<string, { fault: Fault; retryable: boolean }>;

export type ErrorCode = keyof typeof CODES;

/** True for a string that names one of our error codes. */
export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === 'string' && Object.hasOwn(CODES, value);
}

export interface BrokerErrorOptions {
  cause?: unknown;
  /** What the reader can do about it, as a sentence. */
  hint?: string | undefined;
  /** Default: the code's own. */
  fault?: Fault | undefined;
  /** Default: the code's own. */
  retryable?: boolean | undefined;
  /** Default: `no`. */
  committed?: Committed | undefined;
}

/** An expected failure: somebody handles it by its `code`. */
export class BrokerError extends Error {
  override readonly name = 'BrokerError';
  readonly code: ErrorCode;
  readonly fault: Fault;
  readonly retryable: boolean;
  readonly committed: Committed;
  readonly hint: string | undefined;

  constructor(code: ErrorCode, message: string, options: BrokerErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.fault = options.fault ?? CODES[code].fault;
    this.retryable = options.retryable ?? CODES[code].retryable;
    this.committed = options.committed ?? 'no';
    this.hint = options.hint;
  }
}

/** The operating system's name for an error (`ENOENT`, …), if it has one. */
export function errnoOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

/** True when the error carries one of these errno names. */
export function hasErrno(error: unknown, ...names: string[]): boolean {
  const errno = errnoOf(error);
  return errno !== undefined && names.includes(errno);
}

/** One line that says what went wrong, for logs and for `cause` texts. */
export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
