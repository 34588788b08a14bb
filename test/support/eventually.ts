/** Waits for a fact: asks again until it holds, or fails saying what it last saw. */
import { setTimeout as sleep } from 'node:timers/promises';

/** @param look gives a truthy value once the fact holds. */
export async function eventually<T>(what: string, look: () => T | Promise<T>, deadlineMs = 15_000): Promise<NonNullable<T>> {
  const until = performance.now() + deadlineMs;
  let last: unknown;
  while (performance.now() < until) {
    try {
      last = await look();
      if (last) return last as NonNullable<T>;
    } catch (error) {
      last = error;
    }
    await sleep(20);
  }
  throw new Error(
    `not within ${deadlineMs} ms: ${what}; last seen: ${last instanceof Error ? last.message : JSON.stringify(last)}`,
  );
}
