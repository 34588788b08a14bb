/** `broker ls`: every broker, also those of deleted directories. Starts nothing. */

import { type Config, FIXED } from '../config.ts';
import { readHistory } from '../registry/history.ts';
import { stateLayout } from '../registry/paths.ts';
import { readConfig } from '../registry/settings.ts';
import { sweep } from '../supervisor/sweep.ts';
import { print } from './context.ts';
import { type BrokerEntry, readHolds, toEntry } from './entry.ts';
import { renderBytes, renderDuration, renderJson, renderTable } from './render.ts';

export interface LsOptions {
  all?: boolean;
  cost?: boolean;
  json?: boolean;
  watch?: boolean;
}

/** Between two looks when nothing was seen to change, ms. */
const WATCH_EVERY_MS = 5_000;

export async function ls(options: LsOptions): Promise<number> {
  const config = readConfig();
  if (options.watch) return watchList(config, options);
  await print(await renderList(config, options));
  return 0;
}

async function renderList(config: Config, options: LsOptions): Promise<string> {
  const entries = await listEntries(config, options);
  if (options.json) return renderJson(entries);
  const history = options.all ? await renderHistory(config) : '';
  if (entries.length === 0 && history === '') return 'No brokers.\n';
  return renderEntries(entries, options) + history;
}

async function listEntries(config: Config, options: LsOptions): Promise<BrokerEntry[]> {
  const [swept, holds] = await Promise.all([sweep({ config, withStatus: true }), readHolds(config)]);
  const shown = swept.filter(
    ({ verdict, isHighest }) => options.all || (verdict !== 'stopped' && (isHighest || verdict !== 'unknown')),
  );
  const entries = shown.map((one) => toEntry(one, holds));
  if (options.cost) {
    const { measureCost } = await import('./cost.ts');
    for (const entry of entries)
      if (entry.pid !== undefined && entry.clients !== undefined) entry.cost = await measureCost([entry.pid]);
  }
  return entries;
}

function renderEntries(entries: readonly BrokerEntry[], options: LsOptions): string {
  const header = [
    'CWD',
    'PID',
    'VERDICT',
    'CLIENTS',
    'UPSTREAMS',
    'AGE',
    ...(options.cost ? ['CPU', 'RSS', 'PRIVATE'] : []),
    'WHY',
  ];
  const rows = entries.map((entry) => [
    entry.cwd,
    entry.end ? '–' : String(entry.pid ?? '–'),
    entry.verdict,
    String(entry.clients ?? '–'),
    entry.verdict === 'stopped' ? '–' : String(entry.upstreams.length),
    entry.startedAt ? renderDuration(Date.now() - Date.parse(entry.startedAt)) : '–',
    ...(options.cost ? renderCost(entry) : []),
    renderWhy(entry),
  ]);
  return renderTable(header, rows);
}

function renderCost(entry: BrokerEntry): string[] {
  const percent = entry.cost?.cpuPercent;
  return [percent === undefined ? '–' : `${percent}%`, renderBytes(entry.cost?.rssBytes), renderBytes(entry.cost?.privateBytes)];
}

export function renderWhy(entry: BrokerEntry): string {
  const exits = entry.exitsAt ? `, exits in ${renderDuration(Date.parse(entry.exitsAt) - Date.now())}` : '';
  return entry.why.join('; ') + exits;
}

async function renderHistory(config: Config): Promise<string> {
  const history = await readHistory(stateLayout(config.stateDir).historyFile);
  if (history.length === 0) return '';
  const rows = history.map(({ cwd, generation, startedAt, end }) => [
    new Date(end.at).toISOString(),
    end.by === 'broker' ? end.reason : `reaped: ${end.verdict}`,
    renderDuration(end.at - startedAt),
    String(generation),
    cwd,
  ]);
  return `\n${renderTable(['ENDED', 'REASON', 'LIVED', 'GENERATION', 'CWD'], rows)}`;
}

/** Shows the list again whenever the registry changes, and regularly: file events are a hint only. */
async function watchList(config: Config, options: LsOptions): Promise<number> {
  const { watchPath } = await import('./watch.ts');
  let wake: () => void = () => undefined;
  const watching = await watchPath(stateLayout(config.stateDir).brokersDir, 2, () => wake());
  const clear = process.stdout.isTTY ? '\u001b[2J\u001b[H' : '';
  let isOver = false;
  process.stdout.on('error', () => {
    isOver = true;
    wake();
  });
  while (!isOver) {
    await print(clear + (await renderList(config, options)));
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, WATCH_EVERY_MS);
      wake = () => {
        clearTimeout(timer);
        setTimeout(resolve, FIXED.debounceMs);
      };
    });
  }
  await watching.close();
  return 0;
}
