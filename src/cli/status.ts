/** `broker status`: one broker, why it is still up, when it would exit, what it costs. Starts nothing. */
import { readConfig } from '../registry/settings.ts';
import { sweep } from '../supervisor/sweep.ts';
import { findRoot, print } from './context.ts';
import { measureCost } from './cost.ts';
import { type BrokerEntry, readHolds, toEntry } from './entry.ts';
import { renderWhy } from './ls.ts';
import { renderBytes, renderDuration, renderJson } from './render.ts';

/** @returns 3 when the directory has no broker. */
export async function status(cwd: string | undefined, options: { json?: boolean }): Promise<number> {
  const config = readConfig();
  const { root, key } = await findRoot(cwd);
  const swept = (await sweep({ config, keys: [key], withStatus: true })).filter(({ verdict }) => verdict !== 'stopped');
  if (swept.length === 0) {
    if (options.json) await print(renderJson(null));
    else process.stderr.write(`broker: nothing runs for ${root}\n`);
    return 3;
  }
  const holds = await readHolds(config);
  const entries = swept.map((one) => toEntry(one, holds));
  for (const entry of entries)
    if (entry.pid !== undefined && entry.clients !== undefined) entry.cost = await measureCost([entry.pid]);
  // Beside the one in charge there may be an older one that serves its last clients.
  if (options.json) await print(renderJson(entries.length === 1 ? entries[0] : entries));
  else await print(entries.map(renderEntry).join('\n'));
  return 0;
}

function renderEntry(entry: BrokerEntry): string {
  const lines: Array<[string, string]> = [
    ['cwd', entry.cwd],
    ['verdict', entry.verdict],
    ['why', renderWhy(entry)],
  ];
  if (entry.pid !== undefined)
    lines.push(['pid', `${entry.pid}, generation ${entry.generation}, version ${entry.version}, ${entry.phase}`]);
  if (entry.startedAt) lines.push(['up for', renderDuration(Date.now() - Date.parse(entry.startedAt))]);
  if (entry.watch)
    lines.push([
      'directory',
      `${entry.directory}; watched by ${entry.watch === 'events' ? 'events and probes' : `probes only, events ${entry.watch}`}`,
    ]);
  if (entry.cost) {
    const { cpuPercent, rssBytes, privateBytes, processes } = entry.cost;
    const cpu = cpuPercent === undefined ? '–' : `${cpuPercent}%`;
    lines.push([
      'cost',
      `${processes} processes, CPU ${cpu}, RSS ${renderBytes(rssBytes)}, private ${renderBytes(privateBytes)}`,
    ]);
  }
  for (const client of entry.clientList ?? [])
    lines.push(['client', `${client.name} (pid ${client.pid}) on ${client.upstream ?? 'nothing yet'}`]);
  for (const { id, name, state, pid, command } of entry.upstreams) {
    lines.push(['upstream', `${[id, name, state].filter(Boolean).join(' ')} (pid ${pid}): ${(command as string[]).join(' ')}`]);
  }
  for (const hold of entry.holds) lines.push(['hold', `${hold.sessionId} (pid ${hold.pid}${hold.alive ? '' : ', gone'})`]);
  const width = Math.max(...lines.map(([name]) => name.length));
  return lines.map(([name, value]) => `${name.padEnd(width)}  ${value}\n`).join('');
}
