/** A real folder for one test. It goes with the folder of the whole run. */
import { mkdtemp, realpath } from 'node:fs/promises';
import { join } from 'node:path';

export async function createTempDir(): Promise<string> {
  const root = process.env.CWD_BROKER_TEST_ROOT;
  if (root === undefined) throw new Error('the run has no folder: test/support/no-leaks.ts did not run');
  return realpath(await mkdtemp(join(root, 'u-')));
}
