/**
 * Decides whether the cwd is still the same directory. The truth is a periodic probe; a watcher on
 * the parent only makes it come sooner. One answer never decides: see `confirm`. An answer that
 * cannot be had (permissions, a hung file system) decides nothing at all.
 */
import { type FSWatcher, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import { FIXED } from '../config.ts';
import { errnoOf } from '../errors.ts';
import type { Log } from '../log.ts';
import {
  type Confirmation,
  classifyProbe,
  confirm,
  type DirectoryIdentity,
  isAncestorReadable,
  isOnOverlay,
  type ProbeClass,
  probeDirectory,
  type StatDirectory,
  sitsInDeleted,
  statDirectory,
} from '../registry/directory.ts';

export interface DirectoryWatchOptions {
  path: string;
  identity: DirectoryIdentity;
  log: Log;
  /** Whether clients are there: they are told sooner. */
  isBusy(): boolean;
  /** Children that were started in the directory. */
  childPids(): number[];
  /** Called once, when it is sure. */
  onGone(answer: 'gone' | 'replaced'): void;
  stat?: StatDirectory;
}

export class DirectoryWatch {
  readonly #options: DirectoryWatchOptions;
  readonly #stat: StatDirectory;
  #watcher: FSWatcher | undefined;
  #mode = 'not started';
  #timer: NodeJS.Timeout | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  #probing: Promise<ProbeClass> | undefined;
  #confirmation: Confirmation | undefined;
  #sawParentEvent = false;
  #isOverlay = true;
  #isOver = false;
  #lastClass: ProbeClass = 'same';

  constructor(options: DirectoryWatchOptions) {
    this.#options = options;
    this.#stat = oneAtATime(options.stat ?? statDirectory);
  }

  /** How changes are noticed: `events`, or the reason why only by probing. */
  get mode(): string {
    return this.#mode;
  }

  /** What the last probe said. */
  get lastClass(): ProbeClass {
    return this.#lastClass;
  }

  async start(): Promise<void> {
    this.#isOverlay = await isOnOverlay(this.#options.path, FIXED.probeDeadlineMs);
    if (this.#isOver) return;
    this.#openWatcher();
    this.#arm(FIXED.probeBusyMs);
  }

  close(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#watcher?.close();
    this.#watcher = undefined;
  }

  /** Asks for a probe as soon as `busy` periods apply; cheap when one is due earlier anyway. */
  expectSoon(): void {
    if (this.#dueAt > performance.now() + FIXED.probeBusyMs) this.#arm(FIXED.probeBusyMs);
  }

  /** Probes now; callers meanwhile share one probe, since every pending one can block the process. */
  probe(): Promise<ProbeClass> {
    this.#probing ??= this.#probeOnce().finally(() => {
      this.#probing = undefined;
    });
    return this.#probing;
  }

  #openWatcher(): void {
    const { path, log } = this.#options;
    const name = basename(path);
    const close = (error: unknown): void => {
      this.#mode = `off (${errnoOf(error) ?? 'error'})`;
      log.warn('watch.off', { errno: errnoOf(error) });
      this.#watcher?.close();
      this.#watcher = undefined;
    };
    try {
      // A rename of the parent itself comes with the parent's own name, so every name may matter.
      this.#watcher = watch(dirname(path), { persistent: false }, (event, changed) => {
        if (event !== 'rename' || (changed !== name && changed !== basename(dirname(path)) && changed !== null)) return;
        this.#sawParentEvent ||= changed === name;
        if (this.#dueAt > performance.now() + FIXED.debounceMs) this.#arm(FIXED.debounceMs);
      });
      this.#watcher.on('error', close);
      this.#mode = 'events';
    } catch (error) {
      // Without an inotify instance left, watch() throws at once.
      close(error);
    }
  }

  #arm(delayMs: number): void {
    if (this.#isOver) return;
    clearTimeout(this.#timer);
    this.#dueAt = performance.now() + delayMs;
    this.#timer = setTimeout(() => void this.#onTimer(), delayMs);
  }

  async #onTimer(): Promise<void> {
    // After a gap (suspend, stop) earlier answers prove nothing: start over.
    if (performance.now() - this.#dueAt > FIXED.latenessMs) this.#confirmation = undefined;
    await this.probe();
    if (this.#confirmation) this.#arm(FIXED.confirmEveryMs);
    else this.#arm(this.#options.isBusy() ? FIXED.probeBusyMs : FIXED.probeIdleMs);
  }

  async #probeOnce(): Promise<ProbeClass> {
    const { path, identity, log } = this.#options;
    const outcome = await probeDirectory(path, FIXED.probeDeadlineMs, this.#stat);
    const answer = classifyProbe(identity, outcome, this.#hasWitness());
    const isSure = answer === 'gone' || answer === 'replaced';
    const isParentReadable = isSure && (await isAncestorReadable(path, FIXED.probeDeadlineMs, this.#stat));
    const rule = { times: FIXED.confirmTimes, spanMs: FIXED.confirmSpanMs };
    const confirmed = confirm(this.#confirmation, answer, performance.now(), rule, isParentReadable);
    if (answer !== this.#lastClass || (isSure && confirmed.isGone)) {
      log.info('directory.probe', { class: answer, errno: outcome.kind === 'error' ? outcome.errno : undefined });
    }
    this.#lastClass = answer;
    if (answer === 'same') this.#sawParentEvent = false;
    this.#confirmation = confirmed.isGone ? undefined : confirmed.confirmation;
    if (this.#confirmation && this.#dueAt > performance.now() + FIXED.confirmEveryMs) this.#arm(FIXED.confirmEveryMs);
    if (confirmed.isGone && isSure && !this.#isOver) {
      this.close();
      this.#options.onGone(answer);
    }
    return answer;
  }

  /** A second sign beside a changed birth time: a child sits in a deleted directory, or the parent reported that name. */
  #hasWitness(): boolean {
    return (
      this.#options.childPids().some((pid) => sitsInDeleted(pid, this.#options.path)) ||
      (this.#sawParentEvent && !this.#isOverlay)
    );
  }
}

/** Shares a stat that has not returned: four pending ones on a dead file system block every file call of the process. */
function oneAtATime(read: StatDirectory): StatDirectory {
  const pending = new Map<string, ReturnType<StatDirectory>>();
  return (path) => {
    const running = pending.get(path) ?? read(path).finally(() => pending.delete(path));
    pending.set(path, running);
    return running;
  };
}
