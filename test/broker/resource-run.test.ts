import { describe, expect, it } from 'vitest';
import { Resource } from '../../src/broker/resource.ts';
import { BrokerError } from '../../src/errors.ts';
import { createRandom } from '../support/random.ts';

describe('a random life', () => {
  it('never overlaps two starts or tails, and always comes to rest', async () => {
    for (let seed = 1; seed <= 200; seed += 1) await runRandomLife(seed);
  });
});

/** Starts, stops and leases in any order and at any moment; every start must get exactly one tail. */
async function runRandomLife(seed: number): Promise<void> {
  const random = createRandom(seed);
  const hint = `seed ${seed}`;
  let running = 0;
  const up = new Set<number>();
  const tails: number[] = [];
  const pause = async (): Promise<void> => {
    for (let left = random.below(5); left > 0; left -= 1) await Promise.resolve();
    if (random.chance(30)) await new Promise(setImmediate);
  };
  const alone = async (body: () => Promise<void>): Promise<void> => {
    running += 1;
    expect(running, hint).toBe(1);
    await body().finally(() => {
      running -= 1;
    });
  };
  const resource = new Resource<'shutdown'>('random', {
    start: (incarnation) =>
      alone(async () => {
        up.add(incarnation);
        await pause();
        if (random.chance(30)) throw new Error('start failed');
      }),
    stop: (_, incarnation) => [
      () => alone(pause),
      () => {
        tails.push(incarnation);
        up.delete(incarnation);
        if (random.chance(30)) throw new Error('step failed');
      },
    ],
  });
  const failures: unknown[] = [];
  const calls: Array<Promise<unknown>> = [];
  const call = (promise: Promise<unknown>): void => void calls.push(promise.catch((error: unknown) => failures.push(error)));
  for (let step = 0; step < 40; step += 1) {
    const choice = random.below(3);
    if (choice === 0) call(resource.start());
    else if (choice === 1) call(resource.stop('shutdown'));
    else call(resource.withLease('random', pause));
    if (random.chance(50)) await pause();
  }
  await Promise.all(calls);
  for (const error of failures) {
    expect(error instanceof BrokerError ? error.code : (error as Error).message, hint).toMatch(/^(NOT_READY|start failed)$/);
  }
  await resource.stop('shutdown');
  expect([...up], hint).toEqual([]);
  expect(tails, hint).toEqual([...new Set(tails)]);
  expect(resource.leases, hint).toEqual([]);
  expect(['absent', 'stopped', 'failed'], hint).toContain(resource.state);
}
