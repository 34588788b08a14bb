/** One upstream: a child process that is recorded before it runs, watched while it lives, and stopped by the ladder. */
import type { ChildProcess } from 'node:child_process';
import { FIXED } from '../../config.ts';
import { BrokerError } from '../../errors.ts';
import type { Log } from '../../log.ts';
import { type GatedChild, spawnGated } from '../../process/gate.ts';
import { observeTree, stopTree } from '../../process/stop.ts';
import type { ChildRecord } from '../../registry/record.ts';
import { Resource } from '../resource.ts';

/** Why an upstream was stopped: its client left, the broker leaves, or it ended by itself. */
export type UpstreamStopReason = 'closed' | 'shutdown' | 'lost';

/** How a child process ended; one of the two is set. */
export interface ChildExit {
  code?: number;
  signal?: NodeJS.Signals;
}

/** Where children are written down. */
export interface ChildRecorder {
  addChild(child: ChildRecord): Promise<void>;
  replaceChild(child: ChildRecord): Promise<void>;
  removeChild(id: string): Promise<void>;
}

export interface UpstreamOptions {
  id: string;
  instance: string;
  command: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
  cwd: string;
  recorder: ChildRecorder;
  log: Log;
  onExit(exit: ChildExit): void;
}

export class Upstream {
  readonly id: string;
  readonly startedAt = Date.now();
  readonly resource: Resource<UpstreamStopReason>;
  readonly #options: UpstreamOptions;
  #gated: GatedChild | undefined;
  #record: ChildRecord | undefined;
  #hasRun = false;

  constructor(options: UpstreamOptions) {
    this.id = options.id;
    this.#options = options;
    this.resource = new Resource<UpstreamStopReason>(`upstream ${options.id}`, {
      start: (_incarnation, signal) => this.#start(signal),
      stop: (reason) => [() => this.#runLadder(reason), () => this.#forget()],
    });
  }

  get commandLine(): string[] {
    return [this.#options.command, ...this.#options.args];
  }

  get pid(): number | undefined {
    return this.#gated?.target.pid;
  }

  /** The running child. @throws BrokerError NOT_READY before it was started. */
  get process(): ChildProcess {
    if (this.#gated === undefined) throw new BrokerError('NOT_READY', `upstream ${this.id} has no process`);
    return this.#gated.process;
  }

  /** Looks for descendants, and writes new ones down while they are provably ours. */
  async recordTree(): Promise<void> {
    if (this.#gated === undefined || this.#record === undefined || this.resource.state !== 'ready') return;
    await observeTree(this.#gated.target);
    const { known } = this.#gated.target;
    if (known.every((one) => this.#record?.known.some(({ pid, startTime }) => pid === one.pid && startTime === one.startTime)))
      return;
    this.#record = { ...this.#record, known: [...known] };
    await this.#options.recorder.replaceChild(this.#record);
  }

  async #start(signal: AbortSignal): Promise<void> {
    const { id, instance, command, args, cwd, env, recorder, log } = this.#options;
    const gated = await spawnGated({ command, args, cwd, env, marker: `${instance}/${id}`, output: 'pipe' });
    this.#gated = gated;
    gated.process.once('exit', (code, killed) => this.#onExit(code, killed));
    const { pid, startTime, pgid } = gated.target;
    const record: ChildRecord = {
      id,
      kind: 'upstream',
      pid,
      startTime,
      pgid,
      command: this.commandLine,
      startedAt: Date.now(),
      known: [],
    };
    await recorder.addChild(record);
    this.#record = record;
    if (signal.aborted) throw new BrokerError('NOT_READY', `upstream ${id} was stopped while it started`);
    gated.open();
    this.#hasRun = true;
    log.info('upstream.started', { upstream: id, pid, command });
  }

  #onExit(code: number | null, signal: NodeJS.Signals | null): void {
    const exit: ChildExit = signal === null ? { code: code ?? 1 } : { signal };
    this.#options.log.info('upstream.exited', { upstream: this.id, pid: this.pid, ...exit });
    this.#options.onExit(exit);
  }

  async #runLadder(reason: UpstreamStopReason | 'failed'): Promise<void> {
    const gated = this.#gated;
    if (gated === undefined) return;
    if (!this.#hasRun) return gated.abandon();
    const times = { stdinMs: FIXED.stopStdinMs, termMs: FIXED.stopTermMs, killMs: FIXED.stopKillMs };
    const report = await stopTree(gated.target, times, () => gated.process.stdin?.end());
    this.#options.log.info('upstream.stopped', { upstream: this.id, pid: this.pid, reason, step: report.step });
    if (report.isStopped) return;
    this.#options.log.error('upstream.not-stopped', { upstream: this.id, survivors: report.survivors });
    throw new BrokerError('STOP_FAILED', `upstream ${this.id} could not be stopped (pid ${this.pid})`);
  }

  /** A child that could not be stopped stays recorded, so that the next sweep finds it. */
  async #forget(): Promise<void> {
    if (this.#record && this.#gated && (await observeTree(this.#gated.target)).length > 0) return;
    if (this.#record) await this.#options.recorder.removeChild(this.id);
  }
}
