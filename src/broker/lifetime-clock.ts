/**
 * Asks `lifetime.ts` after every change, and again when it said so: the one timer. Remembers since
 * when nobody needs the broker; decides nothing.
 */
import { isNeeded, type Judgement, judge, type LifetimePolicy, type Vitals } from './lifetime.ts';

/** What the broker knows; the rest of the vitals is a matter of time. */
export type Needs = Omit<Vitals, 'quietSinceAt' | 'latenessMs' | 'secondChanceUntilAt' | 'lastHoldGivenBackAt'>;

export interface LifetimeClockOptions {
  policy: LifetimePolicy;
  readNeeds(): Needs;
  /** Called at each change that finds the broker needed. */
  onNeeded(): void;
  onExit(reason: Extract<Judgement, { kind: 'exit' }>['reason']): void;
}

export class LifetimeClock {
  readonly #options: LifetimeClockOptions;
  #quietSinceAt: number | undefined = performance.now();
  #lastHoldGivenBackAt: number | undefined;
  #secondChanceUntilAt: number | undefined;
  #exitsAt: number | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LifetimeClockOptions) {
    this.#options = options;
  }

  /** Since when nobody needs the broker, monotonic ms; undefined while somebody does. */
  get quietSinceAt(): number | undefined {
    return this.#quietSinceAt;
  }

  /** When it would exit as things are, monotonic ms. */
  get exitsAt(): number | undefined {
    return this.#exitsAt;
  }

  noteHoldGivenBack(): void {
    this.#lastHoldGivenBackAt = performance.now();
  }

  /** Judges as of now, and changes nothing. */
  judge(): Judgement {
    const now = performance.now();
    return judge(this.#vitals(now), this.#options.policy, now);
  }

  /** Judges and acts on it: exit, or ask again when it is time. */
  ask(): void {
    const now = performance.now();
    if (isNeeded(this.#vitals(now), this.#options.policy, now)) {
      this.#quietSinceAt = undefined;
      this.#secondChanceUntilAt = undefined;
      this.#lastHoldGivenBackAt = undefined;
      this.#options.onNeeded();
    } else this.#quietSinceAt ??= now;
    const judgement = judge(this.#vitals(now), this.#options.policy, now);
    this.stop();
    if (judgement.kind === 'exit') {
      this.#options.onExit(judgement.reason);
      return;
    }
    if (judgement.kind === 'recheck') {
      this.#exitsAt = judgement.at;
      if (judgement.isSecondChance) this.#secondChanceUntilAt = judgement.at;
    }
    this.#arm(judgement.kind === 'stay' ? judgement.recheckAt : judgement.at);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#exitsAt = undefined;
  }

  /** A timer that was replaced or stopped since it fired asks nothing any more. */
  #askFor(timer: NodeJS.Timeout): void {
    if (this.#timer === timer) this.ask();
  }

  #vitals(now: number): Vitals {
    return {
      ...this.#options.readNeeds(),
      quietSinceAt: this.#quietSinceAt,
      lastHoldGivenBackAt: this.#lastHoldGivenBackAt,
      secondChanceUntilAt: this.#secondChanceUntilAt,
      // Whoever asks after a gap asks late, not only the timer.
      latenessMs: this.#exitsAt === undefined ? 0 : Math.max(0, now - this.#exitsAt),
    };
  }

  #arm(at: number | undefined): void {
    if (at === undefined) return;
    // Clients that connected while the process did not run are let in before anything is judged.
    const timer = setTimeout(
      () => setImmediate(() => setImmediate(() => this.#askFor(timer))),
      Math.max(0, at - performance.now()),
    );
    this.#timer = timer;
  }
}
