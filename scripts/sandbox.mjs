/**
 * A world of its own in a temporary folder: state and runtime dir, an allow-listed environment, the
 * built CLI. Its end lets go of everything that was started in it.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { execa } from 'execa';
import { processesOf } from './processes.mjs';
import { LineClient } from './stdio-client.mjs';

export const BROKER = fileURLToPath(new URL('../bin/broker.js', import.meta.url));

const require = createRequire(import.meta.url);

/** A real MCP server on stdio. */
export const MCP_SERVER = [process.execPath, require.resolve('@modelcontextprotocol/server-everything/dist/index.js'), 'stdio'];

class Sandbox {
  #clients = [];
  #ended;

  /** @param knobs environment variables beside the allow-listed ones. */
  constructor(knobs = {}) {
    // Short, since a socket path has to fit below it.
    this.dir = realpathSync(mkdtempSync(join(tmpdir(), 'broker-')));
    this.stateDir = join(this.dir, 'state');
    this.runtimeDir = join(this.dir, 'run');
    this.env = {
      PATH: process.env.PATH ?? '',
      HOME: this.makeDirectory('home'),
      CWD_BROKER_STATE_DIR: this.stateDir,
      CWD_BROKER_RUNTIME_DIR: this.runtimeDir,
      ...knobs,
    };
  }

  /** A new directory in the sandbox. */
  makeDirectory(name) {
    const path = join(this.dir, name);
    mkdirSync(path, { recursive: true });
    return path;
  }

  /** Runs a command to its end; never throws for what it says. */
  run([command, ...args], { cwd = this.dir, input, timeout = 30_000 } = {}) {
    return execa(command, args, {
      cwd,
      env: this.env,
      extendEnv: false,
      reject: false,
      timeout,
      ...(input === undefined ? { stdin: 'ignore' } : { input }),
    });
  }

  /** Runs the CLI to its end. */
  broker(args, options) {
    return this.run([process.execPath, BROKER, ...args], options);
  }

  /** What `broker ls --json` says. */
  async list() {
    return JSON.parse((await this.broker(['ls', '--json'])).stdout);
  }

  /** Starts a command and keeps its pipes. */
  start(command, { cwd = this.dir } = {}) {
    const client = new LineClient(command, { cwd, env: this.env });
    this.#clients.push(client);
    return client;
  }

  /** Starts a server through the shim. */
  connect(command, options) {
    return this.start([process.execPath, BROKER, 'connect', '--', ...command], options);
  }

  /** Every record on disk, parsed. */
  records() {
    const brokers = join(this.stateDir, 'brokers');
    return namesIn(brokers)
      .flatMap((key) => namesIn(join(brokers, key)).map((name) => join(brokers, key, name)))
      .filter((file) => file.endsWith('.json'))
      .map((file) => JSON.parse(readFileSync(file, 'utf8')));
  }

  sockets() {
    return namesIn(this.runtimeDir).filter((name) => /\.(sock|bind|hide)$/.test(name));
  }

  processes() {
    return processesOf(this.dir);
  }

  /** What a broker must never leave behind, one line each. */
  leftovers() {
    return [
      ...this.processes().map(({ pid, command }) => `process ${pid}: ${command}`),
      ...this.sockets().map((name) => `socket ${name}`),
      ...this.records()
        .filter(({ phase }) => phase !== 'stopped')
        .map(({ cwd, phase, generation }) => `record ${generation} of ${cwd.path}: ${phase}`),
    ];
  }

  /** Stops what runs here and removes the folder; gives back what could not be stopped. Runs once. */
  end() {
    this.#ended ??= this.#end().finally(() => rmSync(this.dir, { recursive: true, force: true, maxRetries: 3 }));
    return this.#ended;
  }

  async #end() {
    await Promise.all(this.#clients.map((client) => client.kill()));
    return until(() => this.#letGo(), { deadlineMs: 30_000, isEnough: (left) => left.length === 0 });
  }

  /** Asks once more each time: whoever rebuilds the CLI meanwhile makes a call of it fail. */
  async #letGo() {
    if (this.leftovers().length === 0) return [];
    await this.broker(['stop', '--all', '--force']);
    await this.broker(['reap']);
    return this.leftovers();
  }
}

/** Looks again and again until it is enough or time is up; gives back what was seen last. */
export async function until(look, { deadlineMs, isEnough = Boolean, everyMs = 25 }) {
  const deadline = performance.now() + deadlineMs;
  for (;;) {
    const seen = await look();
    if (isEnough(seen) || performance.now() > deadline) return seen;
    await sleep(everyMs);
  }
}

/** Runs work with a sandbox that is ended whatever happens, also when this process is told to stop. */
export async function withSandbox(knobs, work) {
  const sandbox = new Sandbox(knobs);
  const onSignal = () => void sandbox.end().finally(() => process.exit(130));
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, onSignal);
  try {
    return await work(sandbox);
  } finally {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.off(signal, onSignal);
    const left = await sandbox.end();
    // Said and not thrown: the error that brought us here is the one to see.
    if (left.length > 0) fail(`left behind in spite of the clean-up:\n  ${left.join('\n  ')}`);
  }
}

export function fail(message) {
  process.exitCode = 1;
  process.stderr.write(`${message}\n`);
}

function namesIn(dir) {
  try {
    return readdirSync(dir);
  } catch (error) {
    if (error.code === 'ENOENT') return [];
    throw error;
  }
}
