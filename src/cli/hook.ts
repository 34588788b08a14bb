/** `broker hook …`: what Claude Code calls. Always exit code 0, nothing on stdout. */

import { BrokerError, describeError } from '../errors.ts';
import { readHookInput } from '../hooks/input.ts';
import { readConfig } from '../registry/settings.ts';

export const HOOKS = ['session-start', 'session-end'] as const;

/** Ends the process with 0, whatever happens: a hook of ours must not fail a host session. */
export async function hook(name: string): Promise<never> {
  try {
    const config = readConfig();
    const input = await readHookInput(process.stdin);
    if (name === 'session-end') {
      const { sessionEnd } = await import('../hooks/session-end.ts');
      await sessionEnd(config, input);
    } else if (name === 'session-start') {
      const { sessionStart } = await import('../hooks/session-start.ts');
      await sessionStart({ config, env: process.env, input, handOver: startDetachedReap });
    } else throw new BrokerError('USAGE', `unknown hook ${JSON.stringify(name)}`, { hint: `Known hooks: ${HOOKS.join(', ')}.` });
  } catch (error) {
    process.stderr.write(`broker hook: ${describeError(error)}\n`);
  }
  // What is still under way (a lock, a file system that does not answer) must not hold up the host session.
  process.exit(0);
}

async function startDetachedReap(): Promise<void> {
  const [{ binScript }, { daemonEnvironment, startDetached }] = await Promise.all([
    import('../installation.ts'),
    import('../process/detach.ts'),
  ]);
  startDetached({ script: binScript('broker.js'), args: ['reap', '--quiet'], env: daemonEnvironment(process.env) });
}
