/** Bytes to lines, with a size limit. Works on bytes, so characters may straddle chunks. */

const NEWLINE = 0x0a;
const RETURN = 0x0d;
const EMPTY: Buffer = Buffer.alloc(0);

/** One line without its end, or the size of one that was dropped for being too long. */
export type Line = { kind: 'line'; bytes: Buffer } | { kind: 'oversize'; length: number };

/**
 * Gathers chunks and hands out lines when asked, so that whoever reads can stop after any line and
 * take the bytes behind it as they are.
 */
export class LineReader {
  readonly #maxBytes: number;
  /** Pieces of a line whose end has not come; searched already. */
  #parts: Buffer[] = [];
  #partsLength = 0;
  /** Bytes not looked at yet. */
  #unread: Buffer = EMPTY;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  push(chunk: Buffer): void {
    this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
  }

  /** The next whole line, blank ones skipped; undefined when more bytes are needed. */
  read(): Line | undefined {
    for (;;) {
      const at = this.#unread.indexOf(NEWLINE);
      if (at < 0) {
        this.#keep(this.#unread);
        this.#unread = EMPTY;
        return undefined;
      }
      const line = this.#finish(this.#unread.subarray(0, at));
      this.#unread = this.#unread.subarray(at + 1);
      if (line.kind === 'oversize' || line.bytes.length > 0) return line;
    }
  }

  /** Everything behind the last line that was read. The reader is empty afterwards. */
  takeRest(): Buffer {
    const rest = Buffer.concat([...this.#parts, this.#unread]);
    this.#parts = [];
    this.#partsLength = 0;
    this.#unread = EMPTY;
    return rest;
  }

  /** A line that grows over the limit is counted, not stored: the memory stays bounded. */
  #keep(piece: Buffer): void {
    this.#partsLength += piece.length;
    if (this.#partsLength > this.#maxBytes) this.#parts = [];
    else if (piece.length > 0) this.#parts.push(piece);
  }

  #finish(tail: Buffer): Line {
    const length = this.#partsLength + tail.length;
    const bytes = this.#parts.length === 0 ? tail : Buffer.concat([...this.#parts, tail]);
    this.#parts = [];
    this.#partsLength = 0;
    if (length > this.#maxBytes) return { kind: 'oversize', length };
    return { kind: 'line', bytes: bytes.at(-1) === RETURN ? bytes.subarray(0, -1) : bytes };
  }
}
