import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { type HookInput, parseHookInput, readHookInput } from '../../src/hooks/input.ts';

/** Longer than any test may take: a read that waits for it is seen by the test's own deadline. */
const FOREVER_MS = 60_000;

/** A stream in place of stdin. */
function createStdin(): { stdin: NodeJS.ReadStream; stream: PassThrough } {
  const stream = new PassThrough();
  return { stdin: stream as unknown as NodeJS.ReadStream, stream };
}

describe('parseHookInput', () => {
  it.each<[string, HookInput | undefined]>([
    ['{"session_id":"s1","cwd":"/w","hook_event_name":"SessionStart"}', { sessionId: 's1', cwd: '/w' }],
    ['{"session_id":"s1"}', { sessionId: 's1' }],
    ['{"cwd":"/w"}', { cwd: '/w' }],
    ['{}', {}],
    ['{"session_id":7,"cwd":null}', {}],
    ['{"session_id":"s1","cwd":"relative"}', { sessionId: 's1' }],
    ['{"session_id":"s1","cwd":""}', { sessionId: 's1' }],
    ['{"sessionId":"s1"}', {}],
    [' {"cwd":"/é"}\n', { cwd: '/é' }],
    ['', undefined],
    ['{"session_id":"s1"', undefined],
    ['null', undefined],
    ['[]', undefined],
    ['"text"', undefined],
    ['7', undefined],
  ])('reads %j', (text, expected) => {
    expect(parseHookInput(text)).toEqual(expected);
  });
});

describe('readHookInput', () => {
  it('is done once the JSON is whole, although the stream stays open', async () => {
    const { stdin, stream } = createStdin();
    const reading = readHookInput(stdin, FOREVER_MS);
    stream.write('{"session_id":"s1","cwd":"/w","more":{}}');
    expect(await reading).toEqual({ sessionId: 's1', cwd: '/w' });
    expect(stream.listenerCount('data')).toBe(0);
    expect(stream.destroyed).toBe(true);
  });

  it('puts together what comes in pieces, characters that straddle them included', async () => {
    const { stdin, stream } = createStdin();
    const reading = readHookInput(stdin, FOREVER_MS);
    for (const byte of Buffer.from('{"more":{"a":1},"cwd":"/é🙂","session_id":"s1"}\n')) stream.write(Buffer.from([byte]));
    expect(await reading).toEqual({ sessionId: 's1', cwd: '/é🙂' });
  });

  it.each(['', '{"session_id":"s1"', 'nonsense', '[]'])('finds nothing in %j when the stream ends', async (text) => {
    const { stdin, stream } = createStdin();
    const reading = readHookInput(stdin, FOREVER_MS);
    stream.end(text);
    expect(await reading).toEqual({});
  });

  it('finds nothing when the stream breaks', async () => {
    const { stdin, stream } = createStdin();
    const reading = readHookInput(stdin, FOREVER_MS);
    stream.destroy(new Error('EIO'));
    expect(await reading).toEqual({});
  });

  it('finds nothing when nobody writes in time', async () => {
    expect(await readHookInput(createStdin().stdin, 5)).toEqual({});
  });

  it('does not wait for a person at a terminal', async () => {
    const { stdin } = createStdin();
    stdin.isTTY = true;
    expect(await readHookInput(stdin, FOREVER_MS)).toEqual({});
  });

  it('does not read without end', async () => {
    const { stdin, stream } = createStdin();
    const reading = readHookInput(stdin, FOREVER_MS);
    const piece = 'x'.repeat(64 * 1024);
    let isDone = false;
    void reading.then(() => {
      isDone = true;
    });
    let written = 0;
    for (; !isDone && written < 64; written += 1) {
      stream.write(piece);
      await new Promise(setImmediate);
    }
    expect(await reading).toEqual({});
    expect(written).toBeLessThan(20);
  });
});
