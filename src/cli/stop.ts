/** `broker stop`: ends the broker of a directory, or all of them. Nothing there is success. */

import { BrokerError } from '../errors.ts';
import { readConfig } from '../registry/settings.ts';
import { type StopResult, stopBrokers } from '../supervisor/stop-broker.ts';
import { findRoot, print } from './context.ts';
import { renderJson } from './render.ts';

export interface StopOptions {
  all?: boolean;
  force?: boolean;
  json?: boolean;
}

/** @returns 1 when a broker is still there. */
export async function stop(cwd: string | undefined, options: StopOptions): Promise<number> {
  if (options.all && cwd !== undefined) throw new BrokerError('USAGE', 'give a directory or --all, not both');
  const results = await stopBrokers({
    config: readConfig(),
    env: process.env,
    isForced: options.force ?? false,
    ...(!options.all && { keys: [(await findRoot(cwd)).key] }),
  });
  if (options.json) await print(renderJson(results));
  else await print(results.map(renderResult).join('') || 'Nothing to stop.\n');
  return results.every(({ outcome }) => outcome === 'stopped') ? 0 : 1;
}

function renderResult({ cwd, pid, outcome }: StopResult): string {
  const what = {
    stopped: 'stopped',
    'not-answering': 'alive and not answering; `broker stop --force` ends it',
    'still-there': 'still there; see `broker logs`',
  }[outcome];
  return `${cwd} (pid ${pid}): ${what}\n`;
}
