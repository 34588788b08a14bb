/**
 * Runs a hook's work so that it can never fail or hold up a host session: whatever happens, the exit
 * code is 0, nothing goes to stdout, and what takes longer than the budget is left behind.
 */
import { describeError } from '../errors.ts';

/** Says whether the work came to its end within the budget. Problems go to stderr, one line. */
export async function runHook(name: string, budgetMs: number, work: () => Promise<void>): Promise<'done' | 'late' | 'failed'> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<'late'>((resolve) => {
    timer = setTimeout(() => resolve('late'), budgetMs);
  });
  try {
    return await Promise.race([work().then(() => 'done' as const), late]);
  } catch (error) {
    process.stderr.write(`broker hook ${name}: ${describeError(error)}\n`);
    return 'failed';
  } finally {
    clearTimeout(timer);
  }
}
