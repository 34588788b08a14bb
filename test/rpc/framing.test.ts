import { describe, expect, it } from 'vitest';
import { type Line, LineReader } from '../../src/rpc/framing.ts';
import { createRandom, type Random } from '../support/random.ts';

const MAX_BYTES = 64;

/** Every line that can be read now; oversize ones as their length. */
function readAll(reader: LineReader): Array<string | number> {
  const lines: Array<string | number> = [];
  for (let line = reader.read(); line !== undefined; line = reader.read()) lines.push(show(line));
  return lines;
}

function show(line: Line): string | number {
  return line.kind === 'line' ? line.bytes.toString('utf8') : line.length;
}

function readChunks(chunks: readonly Buffer[], maxBytes = MAX_BYTES): Array<string | number> {
  const reader = new LineReader(maxBytes);
  return chunks.flatMap((chunk) => {
    reader.push(chunk);
    return readAll(reader);
  });
}

const readText = (text: string): Array<string | number> => readChunks([Buffer.from(text)]);

function cut(bytes: Buffer, random: Random): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 1 + random.below(random.chance(50) ? 3 : 40);
    chunks.push(bytes.subarray(at, end));
    at = end;
  }
  return chunks;
}

describe('LineReader', () => {
  it.each([
    ['one line', 'a\n', ['a']],
    ['several lines', 'a\nb\nc\n', ['a', 'b', 'c']],
    ['a line without its end', 'a\nb', ['a']],
    ['blank lines', '\n\na\n\r\n\nb\n', ['a', 'b']],
    ['carriage returns at the end of a line', 'a\r\nb\r\n', ['a', 'b']],
    ['one carriage return only', 'a\r\r\n', ['a\r']],
    ['a carriage return inside a line', 'a\rb\n', ['a\rb']],
    ['spaces', ' \n', [' ']],
    ['a line as long as allowed', `${'x'.repeat(64)}\n`, ['x'.repeat(64)]],
    ['a line that is one byte too long', `${'x'.repeat(65)}\nb\n`, [65, 'b']],
    ['a line that is too long in bytes only', `${'é'.repeat(33)}\n`, [66]],
    ['nothing', '', []],
  ])('reads %s', (_, text, expected) => {
    expect(readText(text)).toEqual(expected);
  });

  it('reads the same however the bytes are cut', () => {
    for (let seed = 1; seed <= 300; seed += 1) {
      const random = createRandom(seed);
      const parts = Array.from({ length: 30 }, () =>
        random.pick(['é', '日本', '🙂', '\n', '\r\n', '\r', ' ', '{"a":1}', 'x'.repeat(random.below(90))]),
      );
      const bytes = Buffer.from(`${parts.join('')}\n`);
      expect(readChunks(cut(bytes, random)), `seed ${seed}`).toEqual(readChunks([bytes]));
    }
  });

  it('puts characters together that straddle chunks', () => {
    const bytes = Buffer.from('{"x":"🙂é"}\n');
    const single = Array.from(bytes, (_, at) => bytes.subarray(at, at + 1));
    expect(readChunks(single)).toEqual(['{"x":"🙂é"}']);
  });

  it('leaves bytes that are no text as they are', () => {
    const reader = new LineReader(MAX_BYTES);
    reader.push(Buffer.from([0xff, 0x00, 0x80, 0x0a]));
    expect(reader.read()).toEqual({ kind: 'line', bytes: Buffer.from([0xff, 0x00, 0x80]) });
  });

  it('counts a line that is far too long, and does not store it', () => {
    const reader = new LineReader(1024);
    // Every piece is the same buffer: what is read must be counted without any copy that grows.
    const piece = Buffer.alloc(1024 * 1024, 'x');
    const before = process.memoryUsage().arrayBuffers;
    for (let pieces = 512; pieces > 0; pieces -= 1) {
      reader.push(piece);
      expect(reader.read()).toBeUndefined();
    }
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * 1024 * 1024);
    reader.push(Buffer.from('\nnext\n'));
    expect(readAll(reader)).toEqual([512 * 1024 * 1024, 'next']);
  });

  it('forgets a line that is too long once it has ended', () => {
    expect(readChunks(['x'.repeat(100), 'y\n', 'a', 'b\n'].map((text) => Buffer.from(text)))).toEqual([101, 'ab']);
  });
});

describe('takeRest', () => {
  it('gives exactly the bytes behind the last line, whatever they are', () => {
    const reader = new LineReader(MAX_BYTES);
    const rest = Buffer.from([0x0d, 0x0a, 0x0a, 0xff, 0x00, 0x0d]);
    reader.push(Buffer.concat([Buffer.from('first\n'), rest]));
    expect(reader.read()).toEqual({ kind: 'line', bytes: Buffer.from('first') });
    expect(reader.takeRest()).toEqual(rest);
    expect(reader.takeRest()).toEqual(Buffer.alloc(0));
  });

  it('gives back what was gathered for a line that has not ended', () => {
    const reader = new LineReader(MAX_BYTES);
    for (const text of ['first\nha', 'lf', ' a line']) {
      reader.push(Buffer.from(text));
      readAll(reader);
    }
    expect(reader.takeRest().toString()).toBe('half a line');
  });

  it('gives the same however the bytes are cut', () => {
    for (let seed = 1; seed <= 100; seed += 1) {
      const random = createRandom(seed);
      const rest = Buffer.from(Array.from({ length: 40 }, () => random.pick([0x0a, 0x0d, 0xff, 0x41])));
      const reader = new LineReader(MAX_BYTES);
      let line: Line | undefined;
      for (const chunk of cut(Buffer.concat([Buffer.from('first\n'), rest]), random)) {
        reader.push(chunk);
        line ??= reader.read();
      }
      expect(line && show(line), `seed ${seed}`).toBe('first');
      expect(reader.takeRest(), `seed ${seed}`).toEqual(rest);
    }
  });
});
