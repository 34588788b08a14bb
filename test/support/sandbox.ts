/**
 * A world of its own for one test: directories, an allow-listed environment, the built CLI. Its end
 * stops what the test started and fails the test if anything is left.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdir, mkdtemp, readdir, realpath, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { execa } from 'execa';
import { expect, onTestFinished } from 'vitest';
import { type Config, loadConfig } from '../../src/config.ts';
import { brokerKey, stateLayout } from '../../src/registry/paths.ts';
import type { BrokerRecord } from '../../src/registry/record.ts';
import { readHighest } from '../../src/registry/records.ts';
import { eventually } from './eventually.ts';
import { processesOf, type TestProcess } from './processes.ts';

const BROKER = fileURLToPath(new URL('../../bin/broker.js', import.meta.url));
const FIXTURES = fileURLToPath(new URL('../fixtures/', import.meta.url));

export interface Ran {
  code: number | undefined;
  stdout: string;
  stderr: string;
}

export interface RunOptions {
  cwd?: string;
  env?: Record<string, string>;
  input?: string;
}

export class Sandbox {
  readonly dir: string;
  /** The working directory whose broker is meant. */
  readonly work: string;
  readonly stateDir: string;
  readonly runtimeDir: string;
  readonly env: Record<string, string>;
  readonly #children: ChildProcess[] = [];

  constructor(dir: string, env: Record<string, string>) {
    this.dir = dir;
    this.work = join(dir, 'work');
    this.stateDir = join(dir, 'state');
    this.runtimeDir = join(dir, 'run');
    this.env = {
      PATH: process.env.PATH ?? '',
      HOME: join(dir, 'home'),
      CWD_BROKER_STATE_DIR: this.stateDir,
      CWD_BROKER_RUNTIME_DIR: this.runtimeDir,
      CWD_BROKER_GRACE_MS: '500',
      CWD_BROKER_TEST_SANDBOX: dir,
      ...env,
    };
  }

  get config(): Config {
    return loadConfig(this.env);
  }

  /** Path of the CLI's script. */
  readonly brokerScript = BROKER;

  /** Path of a fixture program. */
  fixture(name: string): string {
    return join(FIXTURES, name);
  }

  /** Runs the CLI to its end. */
  async cli(args: readonly string[], options: RunOptions = {}): Promise<Ran> {
    const result = await execa(process.execPath, [BROKER, ...args], {
      cwd: options.cwd ?? this.work,
      env: { ...this.env, ...options.env },
      extendEnv: false,
      reject: false,
      timeout: 60_000,
      stripFinalNewline: false,
      ...(options.input === undefined ? { stdin: 'ignore' as const } : { input: options.input }),
    });
    return { code: result.exitCode, stdout: String(result.stdout), stderr: String(result.stderr) };
  }

  /** Starts `broker connect` and keeps its pipes. */
  connect(command: readonly string[], options: RunOptions & { flags?: readonly string[] } = {}): Shim {
    const child = spawn(process.execPath, [BROKER, 'connect', ...(options.flags ?? []), '--', ...command], {
      cwd: options.cwd ?? this.work,
      env: { ...this.env, ...options.env },
      stdio: 'pipe',
    });
    this.#children.push(child);
    return new Shim(child);
  }

  async record(root = this.work): Promise<BrokerRecord | undefined> {
    const found = await readHighest(stateLayout(this.stateDir).folder(brokerKey(root)));
    return found?.reading.kind === 'record' ? found.reading.record : undefined;
  }

  /** The record once its broker serves. */
  async servingRecord(root = this.work): Promise<BrokerRecord> {
    return eventually('a serving broker', async () => {
      const record = await this.record(root);
      return record?.phase === 'serving' ? record : undefined;
    });
  }

  processes(): TestProcess[] {
    return processesOf(this.dir);
  }

  /** Every name in the runtime dir. */
  async runtimeFiles(): Promise<string[]> {
    try {
      return await readdir(this.runtimeDir);
    } catch {
      return [];
    }
  }

  /** Waits until no process and no runtime file of this world is left. */
  async isClean(deadlineMs = 20_000): Promise<void> {
    await eventually(
      'nothing is left',
      async () => {
        const left = [...this.processes().map(({ pid, command }) => `${pid} ${command}`), ...(await this.runtimeFiles())];
        if (left.length > 0) throw new Error(left.join('\n'));
        return true;
      },
      deadlineMs,
    );
  }

  async end(): Promise<void> {
    for (const child of this.#children) child.kill('SIGKILL');
    await this.cli(['stop', '--all', '--force'], { cwd: '/' });
    await this.cli(['reap'], { cwd: '/' });
    await this.isClean();
    const entries = JSON.parse((await this.cli(['ls', '--json'], { cwd: '/' })).stdout) as unknown[];
    expect(entries, 'live records left').toEqual([]);
  }
}

/** A client as any other program would be one: pipes to `broker connect`. */
export class Shim {
  readonly child: ChildProcess;
  readonly exit: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  stdout = '';
  stderr = '';

  constructor(child: ChildProcess) {
    this.child = child;
    this.exit = new Promise((resolve) => child.once('exit', (code, signal) => resolve({ code, signal })));
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text;
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
    });
    child.stdin?.on('error', () => undefined);
  }

  get pid(): number {
    return this.child.pid as number;
  }

  send(line: string): void {
    this.child.stdin?.write(`${line}\n`);
  }

  /** Resolves once stdout holds this. */
  async says(text: string, deadlineMs = 20_000): Promise<void> {
    await eventually(
      `stdout says ${JSON.stringify(text)} (stderr: ${this.stderr})`,
      () => this.stdout.includes(text),
      deadlineMs,
    );
  }

  /** Sends a line and waits for the same line to come back from an echoing upstream. */
  async echoes(line: string): Promise<void> {
    this.send(line);
    await this.says(`${line}\n`);
  }

  end(): void {
    this.child.stdin?.end();
  }
}

/**
 * Makes a world that ends with the test. `env` sets knobs; the grace is 500 ms unless it says otherwise.
 * Tests that run at the same time pass the `onTestFinished` of their own context.
 */
export async function createSandbox(
  env: Record<string, string> = {},
  onFinished: typeof onTestFinished = onTestFinished,
): Promise<Sandbox> {
  const root = process.env.CWD_BROKER_TEST_ROOT;
  if (root === undefined) throw new Error('the run has no folder: test/support/no-leaks.ts did not run');
  const sandbox = new Sandbox(await realpath(await mkdtemp(join(root, 's-'))), env);
  await mkdir(sandbox.work);
  await mkdir(join(sandbox.dir, 'home'));
  // As on a machine in use: the hourly reap is not due, so that none runs beside the test.
  await mkdir(sandbox.stateDir, { mode: 0o700 });
  await writeFile(stateLayout(sandbox.stateDir).reapStamp, '');
  onFinished(() => sandbox.end(), 60_000);
  return sandbox;
}
