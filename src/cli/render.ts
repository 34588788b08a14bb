/** What people and scripts see: tables, ages, errors, JSON. */
import { BrokerError, describeError } from '../errors.ts';

/** Lines of columns, two spaces apart; the last column is not padded. */
export function renderTable(header: readonly string[], rows: ReadonlyArray<readonly string[]>): string {
  const all = [header, ...rows].map((row) => row.map(printable));
  const widths = header.map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)));
  return all
    .map((row) =>
      row
        .map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0)))
        .join('  ')
        .trimEnd(),
    )
    .map((line) => `${line}\n`)
    .join('');
}

/** A directory may have any name; a terminal must not obey it. */
function printable(cell: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
  return cell.replace(/[\u0000-\u001f\u007f]/g, '?');
}

export function renderJson(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** A duration for people: 12s, 5m, 3h, 2d. */
export function renderDuration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)}h`;
  return `${Math.round(seconds / 86_400)}d`;
}

/** Bytes for people, in MB of a million. */
export function renderBytes(bytes: number | undefined): string {
  return bytes === undefined ? '–' : `${(bytes / 1e6).toFixed(1)} MB`;
}

/** What failed, its code, why, and what to do. */
export function renderError(error: unknown, asJson: boolean): string {
  const known = error instanceof BrokerError ? error : undefined;
  const cause = error instanceof Error && error.cause !== undefined ? describeError(error.cause) : undefined;
  const message = describeError(error);
  if (asJson) {
    const { code = 'BUG', fault = 'server', retryable = false, hint } = known ?? {};
    return `${JSON.stringify({ error: { code, message, fault, retryable, cause, hint } })}\n`;
  }
  const lines = [`broker: ${message}${known ? ` [${known.code}]` : ''}`];
  if (cause !== undefined && !message.includes(cause)) lines.push(`  cause: ${cause}`);
  if (known?.hint) lines.push(`  hint:  ${known.hint}`);
  if (!known && error instanceof Error && error.stack) lines.push(error.stack);
  return `${lines.join('\n')}\n`;
}
