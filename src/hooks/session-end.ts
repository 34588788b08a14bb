/** SessionEnd: gives the host session's hold back, found by its id and never by the hook's cwd. */
import { tellUnhold } from '../client/control-calls.ts';
import { dial } from '../client/dial.ts';
import type { Config } from '../config.ts';
import { giveBackHold, type Hold } from '../registry/holds.ts';
import { isSafeId, stateLayout } from '../registry/paths.ts';
import { readHighest } from '../registry/records.ts';
import type { HookInput } from './input.ts';
import { runHook } from './run.ts';

/** Claude Code gives all SessionEnd hooks together 1.5 s, the start of Node included. */
const BUDGET_MS = 500;

export async function sessionEnd(config: Config, input: HookInput): Promise<void> {
  await runHook('session-end', BUDGET_MS, async () => {
    if (!isSafeId(input.sessionId)) return;
    const hold = await giveBackHold(stateLayout(config.stateDir).holdsDir, input.sessionId);
    if (hold) await tellBroker(config, hold);
  });
}

/** The broker would notice by itself; told, it can shorten its grace. */
async function tellBroker(config: Config, hold: Hold): Promise<void> {
  const found = await readHighest(stateLayout(config.stateDir).folder(hold.key));
  if (found?.reading.kind !== 'record' || found.reading.record.phase !== 'serving') return;
  const dialed = await dial({
    record: found.reading.record,
    config: { ...config, dialMs: BUDGET_MS / 4, helloMs: BUDGET_MS / 4 },
    clientName: 'hook',
    isControl: true,
  });
  if (dialed.kind !== 'ok') return;
  await tellUnhold(dialed.connection, BUDGET_MS / 4).finally(() => dialed.connection.close());
}
