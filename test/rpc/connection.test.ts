import { once } from 'node:events';
import { createConnection, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { BrokerError } from '../../src/errors.ts';
import { Connection, type ConnectionHandlers } from '../../src/rpc/connection.ts';
import { BROKER_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, RpcError } from '../../src/rpc/messages.ts';
import { eventually } from '../support/eventually.ts';
import { createTempDir } from '../support/temp-dir.ts';

const LIMITS = { maxFrameBytes: 1_000, maxQueueBytes: 100_000 };
/** A request of these tests that is not about time waits for as long as the connection lives. */
const NO_TIMEOUT = 0;

/** Both ends of a real socket. */
async function createSocketPair(): Promise<[Socket, Socket]> {
  const path = join(await createTempDir(), 's.sock');
  const server = createServer();
  server.listen(path);
  await once(server, 'listening');
  const left = createConnection(path);
  const [[right]] = (await Promise.all([once(server, 'connection'), once(left, 'connect')])) as [[Socket], unknown];
  server.close();
  onTestFinished(() => {
    left.destroy();
    right.destroy();
  });
  return [left, right];
}

async function createPair(
  leftHandlers: ConnectionHandlers = {},
  rightHandlers: ConnectionHandlers = {},
): Promise<[Connection, Connection]> {
  const [left, right] = await createSocketPair();
  return [new Connection(left, LIMITS, leftHandlers), new Connection(right, LIMITS, rightHandlers)];
}

/** A connection whose other side is a bare socket. */
async function createHalf(handlers: ConnectionHandlers = {}): Promise<{ connection: Connection; peer: Socket; text(): string }> {
  const [left, peer] = await createSocketPair();
  let seen = '';
  peer.on('data', (chunk: Buffer) => {
    seen += chunk.toString();
  });
  peer.on('error', () => undefined);
  return { connection: new Connection(left, LIMITS, handlers), peer, text: () => seen };
}

const echo: ConnectionHandlers = { onRequest: async (method, params) => ({ result: { method, params } }) };

describe('a request', () => {
  it('is answered, in both directions at once', async () => {
    const [left, right] = await createPair(echo, echo);
    const answers = await Promise.all([
      left.request('a', { x: 'é🙂' }, NO_TIMEOUT),
      right.request('b', [1], NO_TIMEOUT),
      left.request('c', undefined, NO_TIMEOUT),
    ]);
    expect(answers).toEqual([{ method: 'a', params: { x: 'é🙂' } }, { method: 'b', params: [1] }, { method: 'c' }]);
  });

  it('without anyone to answer it gets an error', async () => {
    const [left] = await createPair();
    await expect(left.request('a', {}, NO_TIMEOUT)).rejects.toMatchObject({ code: -32601 });
  });

  it('that meets a bug gets an error; the bug is told, and costs only this connection', async () => {
    const bugs: unknown[] = [];
    const bug = new TypeError('a bug');
    const [left, right] = await createPair({}, { onRequest: () => Promise.reject(bug), onBug: (error) => bugs.push(error) });
    await expect(left.request('a', {}, NO_TIMEOUT)).rejects.toMatchObject({ code: -32603 });
    expect(bugs).toEqual([bug]);
    expect(right.isOpen).toBe(false);
  });

  it('gets a BrokerError as it was thrown', async () => {
    const thrown = new BrokerError('CLOSING', 'leaving', { hint: 'Start anew.', committed: 'yes', retryable: false });
    const [left] = await createPair({}, { onRequest: () => Promise.reject(thrown) });
    const failure = await left.request('a', {}, NO_TIMEOUT).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(BrokerError);
    const { code, fault, hint, committed, retryable, message } = thrown;
    expect(failure).toMatchObject({ code, fault, hint, committed, retryable, message });
  });

  it('gets an RpcError as it was thrown', async () => {
    const thrown = new RpcError({ code: METHOD_NOT_FOUND, message: 'no such method', data: { a: 1 } });
    const [left] = await createPair({}, { onRequest: () => Promise.reject(thrown) });
    const failure = await left.request('a', {}, NO_TIMEOUT).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RpcError);
    expect(failure).toMatchObject({ code: METHOD_NOT_FOUND, message: 'no such method', data: { a: 1 } });
  });

  it.each([
    ['our number without our mark', { code: BROKER_ERROR, message: 'no' }],
    ['our number with a code we do not know', { code: BROKER_ERROR, message: 'no', data: { source: 'broker', code: 'ODD' } }],
  ])('takes an error with %s for a foreign one', async (_, error) => {
    const { connection, peer } = await createHalf();
    const asking = connection.request('a', {}, NO_TIMEOUT);
    peer.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, error })}\n`);
    await expect(asking).rejects.toBeInstanceOf(RpcError);
  });

  it('times out, and does not mind the answer that comes late', async () => {
    const { connection, peer } = await createHalf();
    await expect(connection.request('slow', {}, 5)).rejects.toMatchObject({ code: 'REQUEST_TIMEOUT', committed: 'unknown' });
    const next = connection.request('next', {}, NO_TIMEOUT);
    peer.write('{"jsonrpc":"2.0","id":1,"result":"late"}\n{"jsonrpc":"2.0","id":77,"result":"never asked"}\n');
    peer.write('{"jsonrpc":"2.0","id":null,"result":"nobody"}\n{"jsonrpc":"2.0","id":2,"result":"right"}\n');
    expect(await next).toBe('right');
  });

  it('is not begun before the one that came earlier is answered', async () => {
    const order: string[] = [];
    let open: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const handlers: ConnectionHandlers = {
      onRequest: async (method) => {
        order.push(`begin ${method}`);
        if (method === 'first') await gate;
        order.push(`end ${method}`);
        return { result: method };
      },
      onNotification: (method) => void order.push(method),
    };
    const [left] = await createPair({}, handlers);
    const answers = Promise.all([left.request('first', {}, NO_TIMEOUT), left.request('second', {}, NO_TIMEOUT)]);
    left.notify('third', {});
    await eventually('the first is begun', () => order.length > 0);
    expect(order).toEqual(['begin first']);
    open();
    expect(await answers).toEqual(['first', 'second']);
    await eventually('the notification came', () => order.includes('third'));
    expect(order).toEqual(['begin first', 'end first', 'begin second', 'end second', 'third']);
  });
});

describe('a close', () => {
  it('rejects what is pending on both sides, and says so once', async () => {
    const closes: string[] = [];
    const never: ConnectionHandlers = { onRequest: () => new Promise(() => undefined) };
    const [left, right] = await createPair(
      { ...never, onClose: () => closes.push('left') },
      { ...never, onClose: () => closes.push('right') },
    );
    const pending = [left.request('a', {}, NO_TIMEOUT), left.request('b', {}, 60_000), right.request('c', {}, NO_TIMEOUT)];
    const outcomes = Promise.allSettled(pending);
    left.close();
    left.close();
    left.destroy();
    for (const outcome of await outcomes) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'CONNECTION_CLOSED', committed: 'unknown' } });
    }
    await eventually('both sides are told', () => closes.length === 2);
    expect([left.isOpen, right.isOpen]).toEqual([false, false]);
    await expect(left.request('late', {}, NO_TIMEOUT)).rejects.toMatchObject({ code: 'CONNECTION_CLOSED' });
    expect(() => left.notify('late', {})).not.toThrow();
    expect(closes.sort()).toEqual(['left', 'right']);
  });

  it('lets out what was said before', async () => {
    const heard: unknown[] = [];
    const [left] = await createPair({}, { onNotification: (_, params) => void heard.push(params) });
    for (let at = 0; at < 20; at += 1) left.notify('n', at);
    left.close();
    await eventually('all is heard', () => heard.length === 20);
  });

  it('follows when the other side half-closes', async () => {
    const closes: string[] = [];
    const { connection, peer } = await createHalf({ onClose: () => void closes.push('closed') });
    peer.end();
    await eventually('it is closed', () => closes.length === 1);
    expect(connection.isOpen).toBe(false);
  });

  it('keeps the answer to itself when it came while a request was being answered', async () => {
    let finish: () => void = () => undefined;
    const { connection, peer, text } = await createHalf({
      onRequest: () =>
        new Promise((resolve) => {
          finish = () => resolve({ result: 'late' });
        }),
    });
    peer.write('{"jsonrpc":"2.0","id":1,"method":"a"}\n');
    await eventually('it is being answered', () => connection.socket.isPaused());
    connection.close();
    finish();
    await once(peer, 'close');
    expect(text()).toBe('');
  });
});

describe('an upgrade', () => {
  it('hands over exactly the bytes behind the request, then the stream', async () => {
    const rest = Buffer.from([0x0a, 0x0d, 0xff, 0x00, 0x7b, 0x0a]);
    const closes: string[] = [];
    const taken: Buffer[] = [];
    const { connection, peer, text } = await createHalf({
      onRequest: async () => ({ result: 'go', upgrade: (bytes) => void taken.push(bytes) }),
      onClose: () => void closes.push('closed'),
    });
    peer.write(Buffer.concat([Buffer.from('{"jsonrpc":"2.0","id":1,"method":"attach"}\n'), rest]));
    await eventually('it is taken over', () => taken.length > 0);
    expect(taken).toEqual([rest]);
    expect(connection.isOpen).toBe(false);
    const more = once(connection.socket, 'data');
    peer.write('not a frame\n');
    expect(String((await more)[0])).toBe('not a frame\n');
    await eventually('the answer came', () => text() === '{"jsonrpc":"2.0","id":1,"result":"go"}\n');
    connection.socket.destroy();
    expect(closes).toEqual([]);
  });

  it('gives the asking side exactly the bytes behind the answer, then the stream', async () => {
    const rest = Buffer.from([0x0a, 0x7b, 0xff, 0x0a, 0x00]);
    const { connection, peer } = await createHalf();
    const other = connection.request('other', {}, NO_TIMEOUT);
    const asking = connection.requestUpgrade('attach', {}, NO_TIMEOUT);
    const settled = Promise.allSettled([other]);
    peer.write(Buffer.concat([Buffer.from('{"jsonrpc":"2.0","id":2,"result":{"ok":true}}\n'), rest]));
    expect(await asking).toEqual({ result: { ok: true }, rest });
    expect(await settled).toMatchObject([{ status: 'rejected', reason: { code: 'CONNECTION_CLOSED' } }]);
    peer.write('raw');
    expect(String((await once(connection.socket, 'data'))[0])).toBe('raw');
  });

  it('that is refused leaves the connection as it was', async () => {
    const [left] = await createPair({}, { onRequest: async (method) => answerUnlessAttach(method) });
    await expect(left.requestUpgrade('attach', {}, NO_TIMEOUT)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    expect(await left.request('next', {}, NO_TIMEOUT)).toBe('next');
  });

  function answerUnlessAttach(method: string): { result: unknown } {
    if (method === 'attach') throw new BrokerError('UNAVAILABLE', 'no');
    return { result: method };
  }
});

describe('a bad frame', () => {
  it('is answered with an error, and the next one with its answer', async () => {
    const { peer, text } = await createHalf(echo);
    peer.write(`nonsense\n[]\n{"x":"${'y'.repeat(2_000)}"}\n{"jsonrpc":"2.0","id":1,"method":"a"}\n`);
    await eventually('four answers', () => text().split('\n').length === 5);
    const answers = text()
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { id: unknown; error?: { code: number } });
    expect(answers.map(({ id, error }) => [id, error?.code])).toEqual([
      [null, PARSE_ERROR],
      [null, PARSE_ERROR],
      [null, INVALID_REQUEST],
      [1, undefined],
    ]);
  });

  it('is one too many after some', async () => {
    const { connection, peer, text } = await createHalf(echo);
    peer.write('x\n'.repeat(7));
    await eventually('seven answers', () => text().split('\n').length === 8);
    expect(connection.isOpen).toBe(true);
    peer.write('x\n{"jsonrpc":"2.0","id":1,"method":"a"}\n');
    await once(peer, 'close');
    expect(connection.isOpen).toBe(false);
    expect(text()).not.toContain('"id":1');
  });
});

describe('a slow reader', () => {
  it('is cut once more is queued for it than allowed, and what is pending settles', async () => {
    const closes: string[] = [];
    const [left, right] = await createSocketPair();
    right.pause();
    const connection = new Connection(left, LIMITS, { onClose: () => void closes.push('closed') });
    const pending = connection.request('a', {}, NO_TIMEOUT).catch((error: unknown) => error);
    let sent = 0;
    for (; connection.isOpen && sent < 100; sent += 1) connection.notify('n', 'x'.repeat(50_000));
    expect(sent).toBeLessThan(100);
    expect(await pending).toMatchObject({ code: 'CONNECTION_CLOSED' });
    expect({ closes, isDestroyed: left.destroyed }).toEqual({ closes: ['closed'], isDestroyed: true });
  });

  it('is not cut while it keeps reading', async () => {
    const heard: unknown[] = [];
    const [left] = await createPair({}, { onNotification: (_, params) => void heard.push(params) });
    for (let at = 1; at <= 300; at += 1) {
      left.notify('n', 'x'.repeat(900));
      if (at % 50 === 0) await eventually('it has read', () => heard.length === at);
    }
    expect(left.isOpen).toBe(true);
  });
});
