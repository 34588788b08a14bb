/**
 * May a path be removed? Asks the brokers at and below it. The caller itself, what it descends from,
 * and clients below the host session that calls never count. Starts and ends nothing.
 */
import { resolve } from 'node:path';
import type { ClientStatus } from '../client/control-calls.ts';
import type { Config } from '../config.ts';
import { ancestorsOf, listProcesses } from '../process/tree.ts';
import { canonicalRoot, isWithin } from '../registry/paths.ts';
import { type Swept, sweep } from './sweep.ts';

export interface CheckOptions {
  config: Config;
  path: string;
  /** The host session's own process; clients below it are the caller's. */
  hostPid?: number;
}

/** One reason why the path is busy, as a line for a person. */
export interface BusyReason {
  cwd: string;
  pid?: number;
  what: string;
}

/** Everything that speaks against removing the path; empty when nothing does. */
export async function checkPath(options: CheckOptions): Promise<BusyReason[]> {
  const roots = [...new Set([resolve(options.path), await canonicalRoot(options.path)])];
  const swept = await sweep({ config: options.config, withStatus: true });
  const below = swept.filter(({ record }) => record !== undefined && roots.some((root) => isWithin(record.cwd.path, root)));
  const isCallers = await callersClients(options.hostPid, below);
  return below.flatMap((one) => findReasons(one, isCallers));
}

function findReasons(swept: Swept, isCallers: (client: ClientStatus) => boolean): BusyReason[] {
  const { record, status, verdict, facts } = swept;
  if (record === undefined) return [];
  const common = { cwd: record.cwd.path, ...(record.broker && { pid: record.broker.pid }) };
  if (verdict === 'wedged' || (verdict === 'unknown' && facts.isOfHere)) {
    return [{ ...common, what: `a broker that cannot be examined (${swept.why})` }];
  }
  if (verdict === 'orphan') return [{ ...common, what: `${facts.livingChildren} orphaned helpers; \`broker reap\` ends them` }];
  if (verdict === 'live' && status === undefined) return [{ ...common, what: 'a broker that did not say what it does' }];
  const clients = (status?.clientList ?? []).filter((client) => !isCallers(client));
  if (clients.length === 0) return [];
  const names = clients.map((client) => `${client.name} (pid ${client.pid}, since ${client.since})`).join(', ');
  return [{ ...common, what: `a broker with ${clients.length} attached: ${names}` }];
}

/** Clients that are the caller, one of its ancestors, or below its host session. */
async function callersClients(hostPid: number | undefined, swept: readonly Swept[]): Promise<(client: ClientStatus) => boolean> {
  if (!swept.some(({ status }) => status !== undefined && status.clients > 0)) return () => false;
  const table = await listProcesses();
  const own = new Set(ancestorsOf(table, process.pid));
  return (client) => own.has(client.pid) || (hostPid !== undefined && ancestorsOf(table, client.pid).includes(hostPid));
}
