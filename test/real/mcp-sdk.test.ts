import { createRequire } from 'node:module';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { isAlive } from '../support/processes.ts';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';

const require = createRequire(import.meta.url);
const SERVER = [process.execPath, require.resolve('@modelcontextprotocol/server-everything/dist/index.js'), 'stdio'] as const;

/** The SDK's own client, with a server configuration as a user would write it. */
async function openClient(box: Sandbox, isThroughBroker: boolean): Promise<{ client: Client; transport: StdioClientTransport }> {
  const [command = '', ...args] = isThroughBroker ? [process.execPath, box.brokerScript, 'connect', '--', ...SERVER] : SERVER;
  const transport = new StdioClientTransport({ command, args, cwd: box.work, env: box.env, stderr: 'ignore' });
  const client = new Client({ name: 'real-client', version: '1.0.0' });
  await client.connect(transport);
  return { client, transport };
}

describe("the MCP SDK's client and a real server", () => {
  it('see the same tools, answers and errors through the broker as without it', async () => {
    const box = await createSandbox();
    const direct = await openClient(box, false);
    const brokered = await openClient(box, true);
    const ask = async ({ client }: typeof direct): Promise<unknown> => ({
      server: client.getServerVersion(),
      capabilities: client.getServerCapabilities(),
      tools: await client.listTools(),
      prompts: await client.listPrompts(),
      sum: await client.callTool({ name: 'get-sum', arguments: { a: 2, b: 40 } }),
      echo: await client.callTool({ name: 'echo', arguments: { message: 'grüß dich ✓' } }),
      wrong: await client.callTool({ name: 'no-such-tool', arguments: {} }).catch((error: Error) => error.message),
    });
    expect(await ask(brokered)).toEqual(await ask(direct));
    await Promise.all([direct.client.close(), brokered.client.close()]);
  });

  it('passes 200 concurrent calls of eight clients to whom they belong', async () => {
    const box = await createSandbox();
    const clients = await Promise.all(Array.from({ length: 8 }, () => openClient(box, true)));
    const calls = clients.flatMap(({ client }, who) =>
      Array.from({ length: 25 }, async (_, call) => {
        const message = `client ${who} call ${call}`;
        const { content } = await client.callTool({ name: 'echo', arguments: { message } });
        expect(content).toEqual([{ type: 'text', text: `Echo: ${message}` }]);
      }),
    );
    await Promise.all(calls);
    const [entry] = JSON.parse((await box.cli(['ls', '--json'])).stdout);
    expect(entry.clients).toBe(8);
    await Promise.all(clients.map(({ client }) => client.close()));
  });

  it("leaves nothing behind after the client's own way of closing", async () => {
    const box = await createSandbox();
    const { client, transport } = await openClient(box, true);
    const shim = transport.pid as number;
    const { broker, children } = await box.servingRecord();
    await client.close();
    expect(isAlive(shim)).toBe(false);
    await eventually('all are gone', () => ![broker?.pid, children[0]?.pid].some((pid) => isAlive(pid as number)));
    expect((await box.record())?.end).toMatchObject({ reason: 'idle' });
  });
});
