/**
 * The one primitive of everything the broker owns: something that is started once, leased while
 * needed, and stopped once.
 *
 * Every leak of this kind has one shape: something was acquired, its owner vanished, and the release
 * hung on an event that never came. So a start is shared by all who ask and its failure is not kept;
 * a stop is shared too, runs its whole tail whatever fails in it, and may come at any time, also in
 * the middle of a start. Each start is an incarnation, and what a dead incarnation reports is dropped.
 */
import { BrokerError } from '../errors.ts';
import { type HeldLease, type Lease, Leases } from './leases.ts';

export type ResourceState = 'absent' | 'starting' | 'ready' | 'stopping' | 'stopped' | 'failed';

export interface ResourceBody<Reason extends string> {
  /** Brings it up. `signal` is aborted when it is to be stopped meanwhile. */
  start(incarnation: number, signal: AbortSignal): Promise<void>;
  /** The steps of taking it down, each run whatever became of those before. `failed`: the start did not come through. */
  stop(reason: Reason | 'failed', incarnation: number): Array<() => Promise<void> | void>;
}

export class Resource<Reason extends string> {
  readonly id: string;
  readonly #body: ResourceBody<Reason>;
  readonly #now: () => number;
  readonly #leases = new Leases();
  #state: ResourceState = 'absent';
  #incarnation = 0;
  #starting: Promise<void> | undefined;
  #startAbort: AbortController | undefined;
  #stopping: Promise<unknown[]> | undefined;
  #stopReason: Reason | undefined;

  constructor(id: string, body: ResourceBody<Reason>, now: () => number = () => performance.now()) {
    this.id = id;
    this.#body = body;
    this.#now = now;
  }

  get state(): ResourceState {
    return this.#state;
  }

  get incarnation(): number {
    return this.#incarnation;
  }

  get stopReason(): Reason | undefined {
    return this.#stopReason;
  }

  get leases(): HeldLease[] {
    return this.#leases.list();
  }

  /**
   * Brings it up; all callers meanwhile share the one attempt.
   * @throws what the body threw; BrokerError NOT_READY when it is being stopped.
   */
  start(): Promise<void> {
    if (this.#state === 'ready') return Promise.resolve();
    if (this.#starting) return this.#starting;
    if (this.#state === 'stopping') return Promise.reject(this.#notReady());
    this.#incarnation += 1;
    this.#state = 'starting';
    this.#stopReason = undefined;
    this.#startAbort = new AbortController();
    this.#starting = this.#runStart(this.#startAbort.signal).finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  /**
   * Takes it down; the first reason stands and all callers share the one run.
   * @returns what failed on the way, in order; it never rejects.
   */
  stop(reason: Reason): Promise<unknown[]> {
    if (this.#stopping) return this.#stopping;
    // A start that failed is taking itself down already; whoever waits for the end waits for that.
    if (this.#state === 'failed' && this.#starting) return this.#starting.then(nothing, nothing);
    if (this.#state === 'absent' || this.#state === 'stopped' || this.#state === 'failed') return Promise.resolve([]);
    this.#state = 'stopping';
    this.#stopReason = reason;
    this.#stopping = this.#runStop(reason).finally(() => {
      this.#stopping = undefined;
    });
    return this.#stopping;
  }

  /** A lease, or undefined when it is not ready: look-up and acquisition are one step. */
  tryLease(reason: string): Lease | undefined {
    return this.#state === 'ready' ? this.#leases.acquire(reason, this.#now()) : undefined;
  }

  /** @throws BrokerError NOT_READY. */
  lease(reason: string): Lease {
    const lease = this.tryLease(reason);
    if (lease === undefined) throw this.#notReady();
    return lease;
  }

  /** Runs `body` under a lease that ends with it. Rejects, never throws. */
  async withLease<T>(reason: string, body: () => Promise<T> | T): Promise<T> {
    const lease = this.lease(reason);
    try {
      return await body();
    } finally {
      lease.release();
    }
  }

  /** True while `incarnation` is the living one: what an older one reports must be dropped. */
  isCurrent(incarnation: number): boolean {
    return incarnation === this.#incarnation && this.#state !== 'stopped' && this.#state !== 'failed';
  }

  async #runStart(signal: AbortSignal): Promise<void> {
    const incarnation = this.#incarnation;
    try {
      await this.#body.start(incarnation, signal);
    } catch (error) {
      if (this.#state === 'starting') {
        this.#state = 'failed';
        await this.#runTail('failed', incarnation);
      }
      throw error;
    }
    // A stop that came meanwhile runs its tail once this start has settled.
    if (this.#state !== 'starting') throw this.#notReady();
    this.#state = 'ready';
  }

  async #runStop(reason: Reason): Promise<unknown[]> {
    this.#startAbort?.abort();
    const failures: unknown[] = [];
    await this.#starting?.catch((error: unknown) => failures.push(error));
    failures.push(...(await this.#runTail(reason, this.#incarnation)));
    this.#state = 'stopped';
    return failures.filter((error) => !(error instanceof BrokerError && error.code === 'NOT_READY'));
  }

  async #runTail(reason: Reason | 'failed', incarnation: number): Promise<unknown[]> {
    const failures: unknown[] = [];
    const attempt = async <T>(run: () => T | Promise<T>): Promise<T | undefined> => {
      try {
        return await run();
      } catch (error) {
        failures.push(error);
        return undefined;
      }
    };
    for (const step of (await attempt(() => this.#body.stop(reason, incarnation))) ?? []) await attempt(step);
    return failures;
  }

  #notReady(): BrokerError {
    return new BrokerError('NOT_READY', `${this.id} is ${this.#state}`);
  }
}

function nothing(): unknown[] {
  return [];
}
