/**
 * Gives the whole run one folder, and fails it when a process born in the run is left at its end.
 * vitest itself does not: a detached process outlives a run that passes.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { observe } from '../../src/process/identity.ts';
import { processesOf } from './processes.ts';

export default function setup(): () => void {
  const root = mkdtempSync('/tmp/cwdb-');
  process.env.CWD_BROKER_TEST_ROOT = root;
  return () => {
    const left = processesOf(root);
    for (const { pid, startTime } of left) {
      const now = observe(pid);
      if (now.state === 'alive' && now.startTime === startTime) process.kill(pid, 'SIGKILL');
    }
    rmSync(root, { recursive: true, force: true });
    if (left.length === 0) return;
    process.exitCode = 1;
    throw new Error(`processes left by the run:\n${left.map(({ pid, command }) => `  ${pid} ${command}`).join('\n')}`);
  };
}
