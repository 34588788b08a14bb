/** Which upstreams exist, and for whom. Each client has its own: isolated, gone with its client. */
import { type Config, FIXED } from '../../config.ts';
import { BrokerError, describeError, errnoOf } from '../../errors.ts';
import type { Log } from '../../log.ts';
import type { AttachParams, UpstreamStatus } from '../../rpc/control.ts';
import { Attachment } from './attachment.ts';
import { type ChildRecorder, Upstream, type UpstreamStopReason } from './upstream.ts';

export interface PoolOptions {
  instance: string;
  cwd: string;
  config: Pick<Config, 'maxChildren'>;
  recorder: ChildRecorder;
  log: Log;
  /** Called whenever a client or an upstream came or went. */
  onChange(): void;
}

export class Pool {
  readonly #options: PoolOptions;
  readonly #attachments = new Map<string, { attachment: Attachment; name: string | undefined }>();
  #nextId = 1;
  #isClosed = false;
  #treeTimer: NodeJS.Timeout | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** Starts an upstream for one client. @throws BrokerError LIMIT_EXCEEDED, NOT_FOUND, UPSTREAM_START_FAILED, STORE_FAILED. */
  async attach(params: AttachParams): Promise<Attachment> {
    const { config, instance, cwd, recorder, log } = this.#options;
    if (this.#isClosed) throw new BrokerError('CLOSING', 'this broker is leaving');
    if (this.#attachments.size >= config.maxChildren) {
      throw new BrokerError('LIMIT_EXCEEDED', `this broker runs ${config.maxChildren} children already`, {
        hint: 'End some of its clients, or raise CWD_BROKER_MAX_CHILDREN.',
      });
    }
    const id = `u${this.#nextId++}`;
    const upstream = new Upstream({
      id,
      instance,
      cwd,
      recorder,
      log,
      command: params.command,
      args: params.args,
      env: params.env,
      onExit: (exit) => void attachment.onUpstreamExit(exit),
    });
    const attachment = new Attachment(
      id,
      upstream,
      () => this.#onChange(id),
      (failures) => this.#logFailures(id, failures),
    );
    this.#attachments.set(id, { attachment, name: params.name });
    try {
      await upstream.resource.start();
    } catch (error) {
      this.#attachments.delete(id);
      throw error;
    }
    for (const ms of FIXED.treeFirstMs) setTimeout(() => void this.#recordTrees(attachment), ms).unref();
    this.#treeTimer ??= setInterval(() => void this.#recordTrees(), FIXED.treeEveryMs);
    return attachment;
  }

  find(id: string): Attachment | undefined {
    return this.#attachments.get(id)?.attachment;
  }

  childPids(): number[] {
    return [...this.#attachments.values()].flatMap(({ attachment }) => attachment.upstream.pid ?? []);
  }

  goaway(reason: string): void {
    for (const { attachment } of this.#attachments.values()) attachment.goaway(reason);
  }

  /** Stops all upstreams in parallel and takes no new ones; returns when every ladder has come to its end. */
  async stopAll(reason: UpstreamStopReason): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#attachments.values()].map(({ attachment }) => attachment.close(reason)));
    clearInterval(this.#treeTimer);
  }

  status(): UpstreamStatus[] {
    return [...this.#attachments.values()].map(({ attachment, name }) => ({
      id: attachment.id,
      ...(name !== undefined && { name }),
      command: attachment.upstream.commandLine,
      profile: 'raw',
      sharing: 'isolated',
      state: attachment.isSurvivor ? 'not-stopped' : attachment.upstream.resource.state,
      ...(attachment.upstream.pid !== undefined && { pid: attachment.upstream.pid }),
      clients: attachment.isClientThere ? 1 : 0,
      startedAt: new Date(attachment.upstream.startedAt).toISOString(),
    }));
  }

  #onChange(id: string): void {
    const attachment = this.#attachments.get(id)?.attachment;
    const state = attachment?.upstream.resource.state;
    // What could not be stopped is reported and stays listed, never forgotten.
    if ((state === 'stopped' || state === 'failed') && !attachment?.isSurvivor) this.#attachments.delete(id);
    if (this.#attachments.size === 0) {
      clearInterval(this.#treeTimer);
      this.#treeTimer = undefined;
    }
    this.#options.onChange();
  }

  #logFailures(id: string, failures: unknown[]): void {
    for (const error of failures)
      this.#options.log.error('upstream.stop-failed', { upstream: id, message: describeError(error) });
  }

  async #recordTrees(only?: Attachment): Promise<void> {
    const all = only ? [only] : [...this.#attachments.values()].map(({ attachment }) => attachment);
    try {
      // Asked in one turn, they share one look at the process table.
      await Promise.all(all.map(({ upstream }) => upstream.recordTree()));
    } catch (error) {
      // Looked at again soon, and before each stop.
      this.#options.log.warn('tree.unreadable', { errno: errnoOf(error), message: describeError(error) });
    }
  }
}
