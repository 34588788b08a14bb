import { describe, expect, it } from 'vitest';
import { isNeeded, judge, type LifetimePolicy, type Vitals } from '../../src/broker/lifetime.ts';
import { createRandom, type Random } from '../support/random.ts';

const POLICY: LifetimePolicy = {
  graceMs: 60_000,
  heldGraceMs: 5_000,
  helloCountsMs: 5_000,
  holdMs: 0,
  latenessMs: 500,
  lateRecheckMs: 5_000,
};

/** A broker with nothing but a virtual clock, one timer, and what comes and goes. */
class SimulatedBroker {
  readonly #policy: LifetimePolicy;
  now = 0;
  clients = 0;
  helloAt: number[] = [];
  holdsTakenAt: number[] = [];
  timerAt: number | undefined;
  exit: string | undefined;
  secondChances = 0;
  /** How late all timers of this quiet period were together. */
  lateMs = 0;
  neededUntilAt = 0;
  #quietSinceAt: number | undefined;
  #secondChanceUntilAt: number | undefined;
  #lastHoldGivenBackAt: number | undefined;

  constructor(policy: LifetimePolicy) {
    this.#policy = policy;
    this.onChange();
  }

  /** Something that happens to it, judged at once. */
  change(happen: () => void): void {
    this.rememberNeed();
    happen();
    this.onChange();
  }

  /** Moves `neededUntilAt` to the last instant, up to now, at which anything that is still there needed it. */
  rememberNeed(): void {
    const { helloCountsMs, holdMs } = this.#policy;
    const ends = [
      ...this.helloAt.map((at) => at + helloCountsMs),
      ...(holdMs > 0 ? this.holdsTakenAt.map((at) => at + holdMs) : []),
      this.clients > 0 ? this.now : 0,
    ];
    this.neededUntilAt = Math.max(this.neededUntilAt, ...ends.map((at) => Math.min(at, this.now)));
  }

  giveBackHold(): void {
    this.holdsTakenAt = this.holdsTakenAt.slice(1);
    if (this.holdsTakenAt.length === 0) this.#lastHoldGivenBackAt = this.now;
  }

  fire(lateMs: number): void {
    this.now = (this.timerAt ?? this.now) + lateMs;
    this.timerAt = undefined;
    this.lateMs += lateMs;
    this.onChange(lateMs);
  }

  onChange(latenessMs = 0): void {
    if (isNeeded(this.#vitals(0), this.#policy, this.now)) {
      this.#quietSinceAt = undefined;
      this.#lastHoldGivenBackAt = undefined;
      this.secondChances = 0;
      this.#secondChanceUntilAt = undefined;
      this.lateMs = 0;
    } else this.#quietSinceAt ??= this.now;
    const judgement = judge(this.#vitals(latenessMs), this.#policy, this.now);
    if (judgement.kind === 'exit') this.exit = judgement.reason;
    else if (judgement.kind === 'stay') this.timerAt = judgement.recheckAt;
    else {
      this.secondChances += judgement.isSecondChance ? 1 : 0;
      if (judgement.isSecondChance) this.#secondChanceUntilAt = judgement.at;
      this.timerAt = judgement.at;
    }
  }

  #vitals(latenessMs: number): Vitals {
    return {
      attachedClients: this.clients,
      helloAt: this.helloAt,
      holdsTakenAt: this.#policy.holdMs === 0 ? [] : this.holdsTakenAt,
      lastHoldGivenBackAt: this.#lastHoldGivenBackAt,
      quietSinceAt: this.#quietSinceAt,
      stop: undefined,
      isSuperseded: false,
      latenessMs,
      secondChanceUntilAt: this.#secondChanceUntilAt,
    };
  }
}

const EVENTS: Array<(broker: SimulatedBroker) => void> = [
  (broker) => broker.helloAt.push(broker.now),
  (broker) => {
    broker.helloAt = broker.helloAt.slice(1);
    broker.clients += 1;
  },
  (broker) => {
    broker.clients = Math.max(0, broker.clients - 1);
  },
  (broker) => broker.holdsTakenAt.push(broker.now),
  (broker) => broker.giveBackHold(),
  () => undefined,
];

/** Lives through random events, then through none, until it exits. Every step checks the promise. */
function runSimulation(random: Random, policy: LifetimePolicy): SimulatedBroker {
  const broker = new SimulatedBroker(policy);
  const fireUntil = (untilAt: number): void => {
    while (broker.exit === undefined && broker.timerAt !== undefined && broker.timerAt <= untilAt) {
      broker.fire(random.chance(25) ? random.below(20_000) : random.below(100));
      expect(broker.secondChances).toBeLessThanOrEqual(1);
    }
  };
  for (let step = 0; step < 60; step += 1) {
    const nextAt = broker.now + (random.chance(10) ? random.below(150_000) : random.below(15_000));
    fireUntil(nextAt);
    if (broker.exit !== undefined) break;
    broker.now = Math.max(broker.now, nextAt);
    broker.change(() => random.pick(EVENTS)(broker));
  }
  if (broker.exit === undefined && broker.clients > 0) {
    broker.change(() => {
      broker.clients = 0;
    });
  }
  fireUntil(Number.POSITIVE_INFINITY);
  return broker;
}

describe('a broker driven by judge', () => {
  it.each([0, 30_000])('exits in time and never while needed (holds count %i ms)', (holdMs) => {
    for (let seed = 1; seed <= 300; seed += 1) {
      const policy = { ...POLICY, holdMs };
      const broker = runSimulation(createRandom(seed), policy);
      const hint = `seed ${seed}`;
      expect(broker.exit, hint).toBe('idle');
      expect(broker.clients, hint).toBe(0);
      broker.rememberNeed();
      const afterNeedMs = broker.now - broker.neededUntilAt;
      expect(afterNeedMs, hint).toBeGreaterThanOrEqual(policy.heldGraceMs);
      expect(afterNeedMs - broker.lateMs, hint).toBeLessThanOrEqual(policy.graceMs + policy.lateRecheckMs);
    }
  });
});
