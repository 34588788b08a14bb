/** `broker reap`: judges every record and cleans up after what is dead. */
import { readConfig } from '../registry/settings.ts';
import { reap as runReap } from '../supervisor/reap.ts';
import type { ReapAction } from '../supervisor/reap-action.ts';
import { print } from './context.ts';
import { renderJson } from './render.ts';

export interface ReapCommandOptions {
  dryRun?: boolean;
  json?: boolean;
  quiet?: boolean;
}

const DID: Record<ReapAction['action'], string> = {
  ask: 'asked to stop',
  sigterm: 'sent SIGTERM',
  sigkill: 'sent SIGKILL',
  retire: 'retired',
  remove: 'removed old record',
  'drop-hold': 'dropped the hold of a session that is gone',
};

/** @returns 1 when something that should go is still there. */
export async function reap(options: ReapCommandOptions): Promise<number> {
  const isDryRun = options.dryRun ?? false;
  const result = await runReap({ config: readConfig(), env: process.env, isDryRun });
  if (options.json) await print(renderJson(result));
  else if (!options.quiet)
    await print(result.actions.map((action) => renderAction(action, isDryRun)).join('') || 'Nothing to reap.\n');
  return result.isUnfinished ? 1 : 0;
}

function renderAction({ cwd, generation, verdict, action, pids, problem }: ReapAction, isDryRun: boolean): string {
  const whom = pids.length > 0 ? ` (pid ${pids.join(', ')})` : '';
  const done = isDryRun ? `would be: ${DID[action]}` : DID[action];
  return `${cwd} [${verdict}, generation ${generation}]: ${done}${whom}${problem ? `; not done: ${problem}` : ''}\n`;
}
