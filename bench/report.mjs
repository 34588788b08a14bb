/** Rows of figures as a table for people and as JSON for comparison. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, release } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const RESULTS = fileURLToPath(new URL('./results/', import.meta.url));
const HEADER = ['SUBJECT', 'MEDIAN', 'MIN–MAX', 'TIMES', 'OF', 'MIN–MAX', 'TARGET', ''];

/** Everything that is needed to read the figures later. */
export function describeRun({ rows, options, startedAt, loadBefore }) {
  return {
    startedAt: startedAt.toISOString(),
    node: process.version,
    system: `${process.platform} ${release()} ${process.arch}`,
    cpu: `${cpus().length} × ${cpus()[0]?.model ?? 'unknown'}`,
    load: { before: loadBefore, after: loadavg()[0] },
    options,
    rows: rows.map((row) => ({ ...row, ...(row.target !== undefined && { isMet: isMet(row) }) })),
  };
}

/** @returns the file's path. */
export function writeResult(result) {
  mkdirSync(RESULTS, { recursive: true });
  const file = join(RESULTS, `${result.startedAt.slice(0, 19).replaceAll(':', '-')}.json`);
  writeFileSync(file, renderJson(result, 2));
  return file;
}

/** Figures to a tenth of a microsecond: the rest is noise. */
export function renderJson(result, indent) {
  const round = (_, value) => (typeof value === 'number' ? Number(value.toFixed(4)) : value);
  return `${JSON.stringify(result, round, indent)}\n`;
}

export function renderTable(result) {
  const lines = [HEADER, ...result.rows.map(renderRow)];
  const widths = HEADER.map((_, column) => Math.max(...lines.map((line) => line[column].length)));
  const table = lines.map((line) =>
    line
      .map((cell, column) => cell.padEnd(widths[column]))
      .join('  ')
      .trimEnd(),
  );
  const { node, system, cpu, load, options } = result;
  const about = `node ${node}, ${system}, ${cpu}, load ${load.before.toFixed(2)} → ${load.after.toFixed(2)}, ${options.rounds} rounds`;
  return `${about}\n\n${table.join('\n')}\n`;
}

function renderRow(row) {
  const { name, unit, value, baseline, ratio, target } = row;
  return [
    name,
    `${figure(value.median)} ${unit}`,
    range(value),
    ratio ? `${figure(ratio.median)}×` : '',
    baseline ?? '',
    ratio ? range(ratio) : '',
    target === undefined ? '' : `≤ ${target}${ratio ? '×' : ` ${unit}`}`,
    target === undefined ? '' : isMet(row) ? 'ok' : 'miss',
  ];
}

/** A target of a row with a baseline is about the ratio. */
function isMet({ ratio, value, target }) {
  return (ratio ?? value).median <= target;
}

function range({ min, max }) {
  return `${figure(min)}–${figure(max)}`;
}

/** Three digits that say something. */
function figure(number) {
  if (number >= 100) return number.toFixed(0);
  return number >= 10 ? number.toFixed(1) : number.toFixed(number >= 1 ? 2 : 3);
}
