/** SessionStart: one quick pass of sweep and reap, and a hold for this host session. */
import { type Config, FIXED } from '../config.ts';
import { identify } from '../process/identity.ts';
import { takeHold } from '../registry/holds.ts';
import { brokerKey, canonicalRoot, isSafeId, stateLayout } from '../registry/paths.ts';
import { reap } from '../supervisor/reap.ts';
import type { HookInput } from './input.ts';
import { runHook } from './run.ts';

export interface SessionStartOptions {
  config: Config;
  env: Readonly<Record<string, string | undefined>>;
  input: HookInput;
  /** Carries on where the budget ends. */
  handOver(): Promise<void>;
}

export async function sessionStart({ config, env, input, handOver }: SessionStartOptions): Promise<void> {
  let isUnfinished = true;
  const ended = await runHook('session-start', FIXED.hookBudgetMs, async () => {
    await takeSessionHold(config, env, input);
    ({ isUnfinished } = await reap({ config, env, passes: 1, isHasty: true }));
  });
  if (ended === 'late' || (ended === 'done' && isUnfinished)) await handOver();
}

/** Without an id or a host process there is nothing to hold by: a hold that nobody's end frees would be a leak. */
async function takeSessionHold(
  config: Config,
  env: Readonly<Record<string, string | undefined>>,
  input: HookInput,
): Promise<void> {
  const pid = Number(env.CLAUDE_PID);
  if (!isSafeId(input.sessionId) || input.cwd === undefined || !Number.isSafeInteger(pid) || pid <= 1) return;
  const identity = identify(pid);
  if (identity === undefined) return;
  const cwd = await canonicalRoot(input.cwd);
  await takeHold(stateLayout(config.stateDir).holdsDir, {
    sessionId: input.sessionId,
    key: brokerKey(cwd),
    cwd,
    identity,
    takenAt: Date.now(),
  });
}
