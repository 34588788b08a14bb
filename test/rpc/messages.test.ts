import { describe, expect, it } from 'vitest';
import { isRequest, isResponse, parseMessage, RpcError } from '../../src/rpc/messages.ts';

/** What a frame is taken for. */
function kindOf(frame: string): 'request' | 'notification' | 'response' | 'none' {
  const message = parseMessage(Buffer.from(frame));
  if (message === undefined) return 'none';
  if (isResponse(message)) return 'response';
  return isRequest(message) ? 'request' : 'notification';
}

describe('parseMessage', () => {
  it.each([
    ['request', '{"jsonrpc":"2.0","id":1,"method":"a"}'],
    ['request', '{"jsonrpc":"2.0","id":"x","method":"a","params":{"b":[1]}}'],
    ['request', '{"jsonrpc":"2.0","id":0,"method":"a"}'],
    ['request', '{"jsonrpc":"2.0","id":"","method":"a"}'],
    ['request', '{"id":1,"method":"a"}'],
    ['notification', '{"jsonrpc":"2.0","method":"a"}'],
    ['response', '{"jsonrpc":"2.0","id":1,"result":null}'],
    ['response', '{"jsonrpc":"2.0","id":"x","error":{"code":-1,"message":"no"}}'],
    ['response', '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}'],
    ['none', '{"jsonrpc":"2.0","id":null,"method":"a"}'],
    ['none', '{"jsonrpc":"2.0","id":1.5,"method":"a"}'],
    ['none', '{"jsonrpc":"2.0","id":9007199254740993,"method":"a"}'],
    ['none', '{"jsonrpc":"2.0","id":{},"method":"a"}'],
    ['none', '{"jsonrpc":"2.0","id":true,"result":1}'],
    ['none', '{"jsonrpc":"2.0","id":1}'],
    ['none', '{"jsonrpc":"2.0","result":1}'],
    ['none', '{"jsonrpc":"2.0","id":1,"method":7}'],
    ['none', '{}'],
    ['none', '[]'],
    ['none', '[{"jsonrpc":"2.0","id":1,"method":"a"}]'],
    ['none', 'null'],
    ['none', '7'],
    ['none', '"text"'],
    ['none', '{"jsonrpc":"2.0","id":1,"meth'],
    ['none', ''],
  ])('takes for a %s: %s', (expected, frame) => {
    expect(kindOf(frame)).toBe(expected);
  });

  it.each(['null', '7', '"text"', '[]', '{}', '{"code":"1","message":"no"}', '{"code":1}'])(
    'takes no response whose error is %s',
    (error) => {
      expect(kindOf(`{"jsonrpc":"2.0","id":1,"error":${error}}`)).toBe('none');
    },
  );

  it('leaves unknown fields alone', () => {
    expect(parseMessage(Buffer.from('{"jsonrpc":"2.0","method":"a","trace":1}'))).toEqual({
      jsonrpc: '2.0',
      method: 'a',
      trace: 1,
    });
  });

  it('takes a frame that is no UTF-8 for what can be read of it', () => {
    expect(parseMessage(Buffer.from([0xff, 0xfe, 0x00]))).toBeUndefined();
  });
});

describe('RpcError', () => {
  it('keeps code, message and data as they came', () => {
    const error = new RpcError({ code: -32001, message: 'busy', data: { a: 1 } });
    expect(error).toMatchObject({ name: 'RpcError', code: -32001, message: 'busy', data: { a: 1 } });
  });
});
