/** `broker check PATH`: 0 when the path may be removed, 1 when it is busy, with the reasons on stderr. */
import { resolve } from 'node:path';
import { readConfig } from '../registry/settings.ts';
import { checkPath } from '../supervisor/check.ts';
import { startDirectory } from './context.ts';

export async function check(path: string): Promise<number> {
  const hostPid = Number(process.env.CLAUDE_PID);
  const reasons = await checkPath({
    config: readConfig(),
    path: path.startsWith('/') ? path : resolve(startDirectory(), path),
    ...(Number.isSafeInteger(hostPid) && hostPid > 1 && { hostPid }),
  });
  for (const { cwd, pid, what } of reasons) process.stderr.write(`busy: ${cwd}${pid ? ` (broker pid ${pid})` : ''}: ${what}\n`);
  return reasons.length > 0 ? 1 : 0;
}
