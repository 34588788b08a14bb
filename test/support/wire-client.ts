/** A client without our library: speaks the wire protocol byte by byte, rightly or wrongly. */
import { connect, type Socket } from 'node:net';
import type { BrokerRecord } from '../../src/registry/record.ts';
import { eventually } from './eventually.ts';

export class WireClient {
  readonly socket: Socket;
  readonly closed: Promise<void>;
  text = '';
  #nextId = 1;

  constructor(record: BrokerRecord) {
    this.socket = connect({ path: record.socket, allowHalfOpen: true });
    this.socket.on('error', () => undefined);
    this.socket.on('data', (chunk) => {
      this.text += chunk;
    });
    this.socket.on('end', () => this.socket.end());
    this.closed = new Promise((resolve) => this.socket.once('close', () => resolve()));
  }

  send(method: string, params: unknown): number {
    const id = this.#nextId++;
    this.socket.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    return id;
  }

  hello(record: BrokerRecord, more: Record<string, unknown> = {}): number {
    return this.send('broker/hello', {
      protocol: 1,
      token: record.token,
      client: { name: 'by hand', version: '0', pid: process.pid },
      ...more,
    });
  }

  /** The answer to a request. */
  async answer(id: number): Promise<{ result?: unknown; error?: { code: number; message: string; data?: { code: string } } }> {
    return eventually(`an answer to ${id}`, () => {
      const line = this.text.split('\n').find((one) => one.includes(`"id":${id},`) || one.includes(`"id":${id}}`));
      return line === undefined ? undefined : JSON.parse(line);
    });
  }
}
