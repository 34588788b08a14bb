/** `broker hook …`: what Claude Code calls. Always exit code 0, nothing on stdout. */
import { readConfig } from '../client/client.ts';
import { BrokerError, describeError } from '../errors.ts';
import { readHookInput } from '../hooks/input.ts';
import { sessionEnd } from '../hooks/session-end.ts';
import { sessionStart } from '../hooks/session-start.ts';
import { binScript } from '../installation.ts';
import { daemonEnvironment, startDetached } from '../process/detach.ts';

export const HOOKS = ['session-start', 'session-end'] as const;

/** Never throws and never returns anything but 0: a hook of ours must not fail a host session. */
export async function hook(name: string): Promise<number> {
  try {
    const config = readConfig();
    const input = await readHookInput(process.stdin);
    if (name === 'session-end') await sessionEnd(config, input);
    else if (name === 'session-start') await sessionStart({ config, env: process.env, input, handOver: startDetachedReap });
    else throw new BrokerError('USAGE', `unknown hook ${JSON.stringify(name)}`, { hint: `Known hooks: ${HOOKS.join(', ')}.` });
  } catch (error) {
    process.stderr.write(`broker hook: ${describeError(error)}\n`);
  }
  return 0;
}

function startDetachedReap(): void {
  startDetached({ script: binScript('broker.js'), args: ['reap', '--quiet'], env: daemonEnvironment(process.env) });
}
