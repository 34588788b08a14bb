/**
 * Wires the parts of one broker: an ordered start, one place where its state changes are judged,
 * and one ordered shutdown.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Config, FIXED } from '../config.ts';
import { BrokerError, describeError, errnoOf } from '../errors.ts';
import type { Log } from '../log.ts';
import { ownIdentity } from '../process/identity.ts';
import type { DirectoryIdentity, ProbeClass } from '../registry/directory.ts';
import { appendHistory } from '../registry/history.ts';
import { type Hold, isHoldAlive, listHolds } from '../registry/holds.ts';
import { type StateLayout, socketNames } from '../registry/paths.ts';
import { type BrokerRecord, EXIT_REASONS, type ExitReason } from '../registry/record.ts';
import { withStartLock } from '../registry/start-lock.ts';
import type { StatusResult } from '../rpc/control.ts';
import { ControlConnection, type ControlHost } from './control.ts';
import { DirectoryWatch } from './directory-watch.ts';
import type { Vitals } from './lifetime.ts';
import { LifetimeClock, type Needs } from './lifetime-clock.ts';
import { Listener } from './listener.ts';
import { RecordKeeper } from './record-keeper.ts';
import { RegistryPresence } from './registry-presence.ts';
import { describeStatus } from './status.ts';
import { Pool } from './upstream/pool.ts';

export interface BrokerOptions {
  /** As its starter wrote it. */
  record: BrokerRecord;
  key: string;
  layout: StateLayout;
  runtimeDir: string;
  config: Config;
  log: Log;
  /** Called once, when everything is over. Children that could not be stopped are in the record. */
  onEnd(reason: ExitReason): void;
}

/** Thrown by `start()` when a higher generation came meanwhile: this one was never needed. */
export class SupersededError extends Error {}

export class Broker implements ControlHost {
  readonly config: Config;
  readonly pool: Pool;
  readonly #options: BrokerOptions;
  readonly #log: Log;
  readonly #folder: string;
  readonly #keeper: RecordKeeper;
  readonly #listener: Listener;
  readonly #presence: RegistryPresence;
  readonly #directory: DirectoryWatch;
  readonly #clock: LifetimeClock;
  readonly #connections = new Set<ControlConnection>();
  #stopWish: Vitals['stop'];
  #stopDetail: string | undefined;
  #isSuperseded = false;
  #holds: Hold[] = [];
  #isLeaving = false;
  /** The exit is past taking back. */
  #hasDecided = false;

  constructor(options: BrokerOptions) {
    const { record, config, log, layout, key, runtimeDir } = options;
    this.#options = options;
    this.config = config;
    this.#log = log;
    this.#folder = layout.folder(key);
    this.#keeper = new RecordKeeper(this.#folder, record, log);
    this.#listener = new Listener(socketNames(runtimeDir, record.generation, record.instance), (socket) => {
      const connection = new ControlConnection(this, socket, () => {
        this.#connections.delete(connection);
        this.onChange();
      });
      this.#connections.add(connection);
    });
    this.pool = new Pool({
      instance: record.instance,
      cwd: record.cwd.path,
      config,
      recorder: this.#keeper,
      log,
      onChange: () => this.onChange(),
    });
    this.#presence = new RegistryPresence({
      layout,
      key,
      runtimeDir,
      keeper: this.#keeper,
      listener: this.#listener,
      log,
      locked: (body) => this.#locked(body),
      isServing: () => this.record.phase === 'serving' && !this.#isLeaving,
      onLook: async () => {
        await this.#readHolds();
        this.onChange();
      },
      onSuperseded: () => {
        this.#isSuperseded = true;
        this.onChange();
      },
      onLost: (detail) => this.stop('socket-lost', detail),
    });
    this.#directory = new DirectoryWatch({
      path: record.cwd.path,
      identity: record.cwd,
      log,
      isBusy: () => [...this.#connections].some((connection) => connection.isAttached),
      childPids: () => this.pool.childPids(),
      onGone: (answer) => this.stop('cwd-gone', `the directory is ${answer}`),
    });
    this.#clock = new LifetimeClock({
      policy: { ...FIXED, graceMs: config.graceMs, holdMs: config.holdMs },
      readNeeds: () => this.#readNeeds(),
      onNeeded: () => this.#directory.expectSoon(),
      onExit: (reason) => void this.#leave(reason),
    });
  }

  get record(): Readonly<BrokerRecord> {
    return this.#keeper.record;
  }

  /** Claims the record, checks that it has authority, listens, and only then says that it serves. */
  async start(): Promise<void> {
    // Both have ended before anything is decided: a socket that is bound after an aborted start would stay.
    const [claimed, published] = await Promise.allSettled([
      this.#keeper.update({ broker: ownIdentity() }),
      this.#listener.publish(),
    ]);
    if (claimed.status === 'rejected') throw claimed.reason;
    if (published.status === 'rejected') throw published.reason;
    await this.#requireAuthority();
    await this.#keeper.update({ phase: 'serving' });
    this.#log.info('phase', { phase: 'serving', generation: this.record.generation });
    this.#presence.start();
    this.onChange();
    // Whoever waits for this broker need not wait for these.
    void this.#directory.start();
    void this.#presence.look();
  }

  /** Asks for the end, whatever is needed. Of several wishes the one with the highest priority stands. */
  stop(reason: NonNullable<Vitals['stop']>, detail?: string): void {
    const rank = (one: ExitReason): number => EXIT_REASONS.indexOf(one);
    if (this.#stopWish === undefined || rank(reason) < rank(this.#stopWish)) {
      this.#stopWish = reason;
      this.#stopDetail = detail;
    }
    this.onChange();
  }

  requestStop(reason: 'requested' | 'cwd-gone'): void {
    this.stop(reason);
  }

  /** Undoes a start that failed: nothing of it stays but a tombstone with the reason. */
  async abortStart(reason: 'fatal' | 'superseded', detail: string): Promise<void> {
    this.#isLeaving = true;
    this.#dispose();
    await this.#step('socket', FIXED.exitStepMs, () => this.#listener.stop());
    await this.#step('tombstone', FIXED.exitStepMs, () => this.#keeper.bury(reason, detail));
  }

  async admit(view: DirectoryIdentity | undefined): Promise<void> {
    await this.#presence.noticeSuccessor();
    const { cwd } = this.record;
    const isOther = view !== undefined && (view.ino !== cwd.ino || view.dev !== cwd.dev || view.birthtimeNs !== cwd.birthtimeNs);
    const seen: ProbeClass = isOther ? await this.#directory.probe() : 'same';
    // Two witnesses, this probe and the client: whoever comes to the new directory gets a new broker.
    if (seen === 'replaced') throw closing('the working directory was replaced');
    if (this.#isSuperseded) throw closing('a newer broker serves this directory');
    if (this.#hasDecided || this.record.phase !== 'serving' || this.#stopWish !== undefined)
      throw closing('this broker is leaving');
  }

  async onHoldGivenBack(): Promise<void> {
    if ((await this.#readHolds()) === 0) this.#clock.noteHoldGivenBack();
    this.onChange();
  }

  /** A bug met while answering somebody: written down; the others are served on. */
  onBug(error: unknown): void {
    this.#log.error('bug', { detail: error instanceof Error ? error.stack : String(error) });
  }

  /** The one door: every change leads here, and is judged anew. */
  onChange(): void {
    if (!this.#isLeaving && this.record.phase === 'serving') this.#clock.ask();
  }

  async status(): Promise<StatusResult> {
    return describeStatus({
      record: this.record,
      connections: [...this.#connections],
      upstreams: this.pool.status(),
      judgement: this.#clock.judge(),
      quietSinceAt: this.#clock.quietSinceAt,
      exitsAt: this.#clock.exitsAt,
      directory: this.#directory.lastClass,
      watch: this.#directory.mode,
      now: performance.now(),
    });
  }

  #readNeeds(): Needs {
    const counted = [...this.#connections].filter((connection) => connection.client && !connection.client.isOwn);
    return {
      attachedClients: counted.filter((connection) => connection.isAttached).length,
      helloAt: counted.flatMap((connection) => (connection.isUndecided && connection.client ? connection.client.helloAt : [])),
      holdsTakenAt: this.config.holdMs === 0 ? [] : this.#holds.map(({ takenAt }) => performance.now() - (Date.now() - takenAt)),
      stop: this.#stopWish,
      isSuperseded: this.#isSuperseded,
    };
  }

  async #leave(reason: ExitReason): Promise<void> {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    const final = await this.#decideFinally(reason);
    if (final === undefined) {
      this.#isLeaving = false;
      this.onChange();
      return;
    }
    await this.#shutDown(final);
  }

  /** What keeps the broker from hiding must not keep it from leaving: not an error, and not a disk that does not answer. */
  async #decideFinally(reason: ExitReason): Promise<ExitReason | undefined> {
    const decided = await this.#step('hide', FIXED.lockWaitMs + FIXED.exitStepMs, () =>
      this.#locked(() => this.#hideAndDrain(reason)),
    );
    if (decided.isDone) return decided.value;
    this.#hasDecided = true;
    return reason;
  }

  /** Under the start lock, so that nobody starts a successor while this one may still stay. */
  async #hideAndDrain(reason: ExitReason): Promise<ExitReason | undefined> {
    await this.#listener.hide();
    const again = this.#clock.judge();
    if (again.kind !== 'exit' && !this.#hasDecided) {
      this.#log.info('exit.taken-back', { reason });
      await this.#listener.unhide();
      return undefined;
    }
    const final = again.kind === 'exit' ? again.reason : reason;
    // From here on nobody is let in, whatever becomes of the write.
    this.#hasDecided = true;
    await this.#keeper.tryUpdate({ phase: 'draining', drainingAt: Date.now() });
    this.#log.info('phase', { phase: 'draining', reason: final, detail: this.#stopDetail });
    return final;
  }

  /** The whole end. Every step runs, under a deadline of its own; what fails is logged. */
  async #shutDown(reason: ExitReason): Promise<void> {
    this.#dispose();
    for (const connection of this.#connections) connection.goaway(reason);
    this.pool.goaway(reason);
    await this.#step('upstreams', this.config.shutdownMs, () => this.pool.stopAll('shutdown'));
    const { record } = this;
    const end = { by: 'broker', reason, at: Date.now(), ...(this.#stopDetail && { detail: this.#stopDetail }) } as const;
    await this.#step('history', FIXED.exitStepMs, () =>
      appendHistory(this.#options.layout.historyFile, {
        cwd: record.cwd.path,
        instance: record.instance,
        generation: record.generation,
        startedAt: record.startedAt,
        end,
      }),
    );
    await this.#step('tombstone', FIXED.exitStepMs, () => this.#keeper.bury(reason, this.#stopDetail));
    await this.#step('socket', FIXED.exitStepMs, () => this.#listener.stop());
    this.#log.info('phase', { phase: 'stopped', reason });
    this.#listener.destroyAll();
    this.#options.onEnd(reason);
  }

  /** Runs one step of the way out; it never throws, and never takes longer than `deadlineMs`. */
  async #step<T>(
    name: string,
    deadlineMs: number,
    run: () => Promise<T>,
  ): Promise<{ isDone: true; value: T } | { isDone: false }> {
    const late = sleep(deadlineMs, undefined, { ref: false }).then(() => {
      throw new Error(`not done within ${deadlineMs} ms`);
    });
    try {
      return { isDone: true, value: await Promise.race([run(), late]) };
    } catch (error) {
      this.#log.error('exit.step-failed', { step: name, message: describeError(error) });
      return { isDone: false };
    } finally {
      late.catch(() => undefined);
    }
  }

  #locked<T>(body: () => Promise<T>): Promise<T> {
    return withStartLock(this.#options.runtimeDir, this.#options.key, FIXED.lockWaitMs, body);
  }

  async #requireAuthority(): Promise<void> {
    const successor = await this.#presence.findSuccessor();
    if (successor !== undefined) throw new SupersededError(`generation ${successor} came meanwhile`);
  }

  #dispose(): void {
    this.#clock.stop();
    this.#directory.close();
    this.#presence.close();
  }

  /** @returns how many host sessions hold this cwd. A folder that cannot be read for the moment changes nothing. */
  async #readHolds(): Promise<number> {
    try {
      const all = await listHolds(this.#options.layout.holdsDir);
      this.#holds = all.filter((hold) => hold.key === this.#options.key && isHoldAlive(hold));
    } catch (error) {
      this.#log.warn('holds.unreadable', { errno: errnoOf(error), message: describeError(error) });
    }
    return this.#holds.length;
  }
}

function closing(why: string): BrokerError {
  return new BrokerError('CLOSING', why, { hint: 'Connect anew: another broker is started where one is needed.' });
}
