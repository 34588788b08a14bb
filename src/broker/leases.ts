/** A set of named leases: each a reason why its owner must not be stopped now. */

export interface Lease {
  /** Gives it back; a second call does nothing. */
  release(): void;
}

export interface HeldLease {
  reason: string;
  /** Of the caller's clock, ms. */
  sinceAt: number;
}

export class Leases {
  readonly #held = new Map<symbol, HeldLease>();
  readonly #onRelease: () => void;

  /** @param onRelease is called after each release, with the set as it then is. */
  constructor(onRelease: () => void = () => undefined) {
    this.#onRelease = onRelease;
  }

  get size(): number {
    return this.#held.size;
  }

  acquire(reason: string, now: number): Lease {
    const key = Symbol(reason);
    this.#held.set(key, { reason, sinceAt: now });
    return {
      release: () => {
        if (this.#held.delete(key)) this.#onRelease();
      },
    };
  }

  list(): HeldLease[] {
    return [...this.#held.values()];
  }
}
