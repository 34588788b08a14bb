/** Clients over a child's stdin and stdout: one that speaks lines, and one that speaks MCP on top of it. */
import { spawn } from 'node:child_process';

const ANSWER_MS = 20_000;

/** Starts a command and talks to it in lines. */
export class LineClient {
  #partial = '';
  #lines = [];
  #waiter;
  stderr = '';

  constructor([command, ...args], { cwd, env }) {
    this.child = spawn(command, args, { cwd, env, stdio: 'pipe' });
    this.exited = new Promise((resolve) => {
      this.child.once('error', (error) => resolve({ code: null, signal: null, error }));
      this.child.once('exit', (code, signal) => resolve({ code, signal }));
    });
    this.child.stdin.on('error', () => undefined);
    this.child.stdout.setEncoding('utf8').on('data', (text) => this.#receive(text));
    this.child.stdout.on('close', () => this.#waiter?.reject(this.#failure('stdout ended')));
    this.child.stderr.setEncoding('utf8').on('data', (text) => {
      this.stderr += text;
    });
  }

  get pid() {
    return this.child.pid;
  }

  send(line) {
    this.child.stdin.write(`${line}\n`);
  }

  /** The next line that comes, or has come and was not asked for yet. */
  nextLine(deadlineMs = ANSWER_MS) {
    if (this.#lines.length > 0) return Promise.resolve(this.#lines.shift());
    if (this.child.stdout.closed) return Promise.reject(this.#failure('stdout ended'));
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#waiter.reject(this.#failure(`no line within ${deadlineMs} ms`)), deadlineMs);
      const settle = (how) => (value) => {
        clearTimeout(timer);
        this.#waiter = undefined;
        how(value);
      };
      this.#waiter = { resolve: settle(resolve), reject: settle(reject) };
    });
  }

  /** Ends its stdin, as a client that leaves does, and waits until the process has ended. */
  async leave() {
    this.child.stdin.end();
    return this.exited;
  }

  /** Ends the process itself. */
  async kill() {
    this.child.kill('SIGKILL');
    return this.exited;
  }

  #receive(text) {
    const lines = (this.#partial + text).split('\n');
    this.#partial = lines.pop();
    this.#lines.push(...lines);
    if (this.#lines.length > 0) this.#waiter?.resolve(this.#lines.shift());
  }

  #failure(what) {
    const said = this.stderr.trim();
    return new Error(`${this.child.spawnargs.join(' ')}: ${what}${said ? `; stderr: ${said}` : ''}`);
  }
}

/** Speaks MCP to a server behind a LineClient. One request at a time. */
export class McpClient {
  #lines;
  #lastId = 0;

  constructor(lines) {
    this.#lines = lines;
  }

  async initialize() {
    await this.request('initialize', {
      protocolVersion: '2025-06-18',
      capabilities: {},
      clientInfo: { name: 'stdio-client', version: '1' },
    });
    this.#lines.send(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }));
  }

  /** Text of the answer of the server's `echo` tool. */
  async echo(message) {
    const { content } = await this.request('tools/call', { name: 'echo', arguments: { message } });
    return content[0].text;
  }

  async request(method, params) {
    this.#lastId += 1;
    const id = this.#lastId;
    this.#lines.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    for (;;) {
      const message = JSON.parse(await this.#lines.nextLine());
      if (message.id !== id || 'method' in message) continue;
      if (message.error) throw new Error(`${method}: ${message.error.message}`);
      return message.result;
    }
  }
}
