/**
 * Keeps this run findable: is its record there and the highest, and can clients find its socket?
 * Mends what is ours, notices a successor, and removes nothing.
 */
import { watch } from 'node:fs';
import { access } from 'node:fs/promises';
import { dirname } from 'node:path';
import { FIXED } from '../config.ts';
import { describeError, errnoOf } from '../errors.ts';
import type { Log } from '../log.ts';
import { makeStateDirs, openRuntimeDir, type StateLayout } from '../registry/paths.ts';
import { listGenerations, readGeneration, touchRecord } from '../registry/records.ts';
import type { Listener } from './listener.ts';
import type { RecordKeeper } from './record-keeper.ts';

export interface PresenceOptions {
  layout: StateLayout;
  key: string;
  runtimeDir: string;
  keeper: RecordKeeper;
  listener: Listener;
  log: Log;
  /** Runs something under the start lock. */
  locked<T>(body: () => Promise<T>): Promise<T>;
  /** False before it serves and once it leaves: then nothing is mended. */
  isServing(): boolean;
  /** Called at every look, so that what is on disk beside the record can be read again too. */
  onLook(): Promise<unknown>;
  onSuperseded(generation: number): void;
  /** It cannot be published again. */
  onLost(detail: string): void;
}

export class RegistryPresence {
  readonly #options: PresenceOptions;
  readonly #folder: string;
  readonly #undo: Array<() => void> = [];
  #looking: Promise<void> | undefined;
  #isSuperseded = false;

  constructor(options: PresenceOptions) {
    this.#options = options;
    this.#folder = options.layout.folder(options.key);
  }

  /** Looks at every event in the folder, and regularly: events are a hint. */
  start(): void {
    this.#watchFolder();
    this.#every(FIXED.selfCheckMs, () => this.look());
    this.#every(FIXED.touchMs, () => this.#touch());
  }

  close(): void {
    for (const undo of this.#undo.splice(0)) undo();
  }

  /** The generation above ours, if there is one that can be seen. */
  async findSuccessor(): Promise<number | undefined> {
    const [highest] = await this.#listGenerations();
    return highest !== undefined && highest > this.#options.keeper.record.generation ? highest : undefined;
  }

  /** Notices a successor, once. Cheap: it is asked before every hello. */
  async noticeSuccessor(): Promise<void> {
    const successor = await this.findSuccessor();
    if (successor === undefined || this.#isSuperseded) return;
    this.#isSuperseded = true;
    this.#options.log.info('superseded', { by: successor });
    this.#options.onSuperseded(successor);
  }

  /** One whole look; calls meanwhile share it. */
  look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #look(): Promise<void> {
    const { isServing, onLook, onLost, log, keeper } = this.#options;
    if (!isServing()) return;
    await this.noticeSuccessor();
    await onLook();
    try {
      if (this.#isSuperseded || !isServing() || (await this.#isFindable())) return;
    } catch (error) {
      // Not to be seen is not to be lost: the next look will tell.
      log.warn('registry.unreadable', { errno: errnoOf(error), message: describeError(error) });
      return;
    }
    log.warn('registry.lost', { socket: keeper.record.socket });
    try {
      await this.#publishAgain();
      log.info('registry.published-again');
    } catch (error) {
      log.error('registry.not-published', { message: describeError(error) });
      onLost(describeError(error));
    }
  }

  /** A registry that cannot be read for the moment names no successor. */
  async #listGenerations(): Promise<number[]> {
    try {
      return await listGenerations(this.#folder);
    } catch (error) {
      this.#options.log.warn('registry.unreadable', { errno: errnoOf(error), message: describeError(error) });
      return [];
    }
  }

  async #isFindable(): Promise<boolean> {
    const { keeper, listener } = this.#options;
    const found = await readGeneration(this.#folder, keeper.record.generation);
    const isOurs = found?.reading.kind === 'record' && found.reading.record.instance === keeper.record.instance;
    return isOurs && (await listener.isPublished());
  }

  async #publishAgain(): Promise<void> {
    const { layout, key, runtimeDir, locked, isServing, keeper, listener } = this.#options;
    // Where the folder above is gone as well, somebody removed the whole place, and we do not build it again.
    for (const dir of [layout.stateDir, runtimeDir]) await access(dirname(dir));
    await makeStateDirs(layout, key);
    await openRuntimeDir({ CWD_BROKER_RUNTIME_DIR: runtimeDir });
    await locked(async () => {
      if (!isServing() || (await this.findSuccessor()) !== undefined) return;
      await keeper.write();
      if (!(await listener.isPublished())) await listener.publish();
    });
  }

  async #touch(): Promise<void> {
    const { keeper, listener, log } = this.#options;
    try {
      await touchRecord(this.#folder, keeper.record.generation);
      await listener.touch();
    } catch (error) {
      log.warn('touch.failed', { message: describeError(error) });
    }
  }

  #every(ms: number, run: () => Promise<void>): void {
    const timer = setInterval(() => void run(), ms);
    this.#undo.push(() => clearInterval(timer));
  }

  #watchFolder(): void {
    let pending: NodeJS.Timeout | undefined;
    const soon = (): void => {
      pending ??= setTimeout(() => {
        pending = undefined;
        void this.look();
      }, FIXED.debounceMs);
    };
    try {
      const watcher = watch(this.#folder, { persistent: false }, soon);
      watcher.on('error', () => watcher.close());
      this.#undo.push(() => {
        clearTimeout(pending);
        watcher.close();
      });
    } catch (error) {
      // Without an inotify instance left, the regular look has to do.
      this.#options.log.warn('watch.off', { folder: true, errno: errnoOf(error) });
    }
  }
}
