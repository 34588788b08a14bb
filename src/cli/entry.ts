/** One broker as `ls` and `status` show it: the documented JSON shape. What is not known is absent. */

import type { StatusResult } from '../client/control-calls.ts';
import type { Config } from '../config.ts';
import { type Hold, isHoldAlive, listHolds } from '../registry/holds.ts';
import { stateLayout } from '../registry/paths.ts';
import type { Swept } from '../supervisor/sweep.ts';
import type { Cost } from './cost.ts';

/** Times are ISO 8601 in UTC. */
export interface BrokerEntry {
  cwd: string;
  pid?: number;
  instance?: string;
  generation: number;
  version?: string;
  phase?: string;
  verdict: string;
  startedAt?: string;
  clients?: number;
  clientList?: StatusResult['clientList'];
  upstreams: Array<Record<string, unknown>>;
  sessions: never[];
  services: never[];
  holds: Array<{ sessionId: string; pid: number; alive: boolean }>;
  idleSince?: string;
  exitsAt?: string;
  why: string[];
  directory?: string;
  watch?: string;
  /** How and when a tombstone's run ended. */
  end?: { by: string; reason: string; at: string };
  cost?: Cost;
}

export async function readHolds(config: Config): Promise<Hold[]> {
  return listHolds(stateLayout(config.stateDir).holdsDir);
}

export function toEntry(swept: Swept, holds: readonly Hold[]): BrokerEntry {
  const { record, status, verdict } = swept;
  const common = { generation: swept.generation, verdict, sessions: [], services: [] };
  const own = holds
    .filter(({ key }) => key === swept.key)
    .map((hold) => ({ sessionId: hold.sessionId, pid: hold.identity.pid, alive: isHoldAlive(hold) }));
  if (record === undefined) return { cwd: swept.key, ...common, upstreams: [], holds: own, why: [swept.why] };
  return {
    cwd: record.cwd.path,
    ...(record.broker && { pid: record.broker.pid }),
    instance: record.instance,
    version: record.version,
    phase: record.phase,
    startedAt: new Date(record.startedAt).toISOString(),
    ...common,
    ...(status && { clients: status.clients, clientList: status.clientList }),
    upstreams: status
      ? status.upstreams.map((one) => ({ ...one }))
      : record.children.map(({ id, command, pid }) => ({ id, command, pid })),
    holds: own,
    ...(status?.idleSince && { idleSince: status.idleSince }),
    ...(status?.exitsAt && { exitsAt: status.exitsAt }),
    why: status && verdict === 'live' && swept.facts.directory === 'same' ? status.why : [swept.why, ...(status?.why ?? [])],
    ...(status && { directory: status.directory, watch: status.watch }),
    ...(record.end && {
      end: {
        by: record.end.by,
        reason: record.end.by === 'broker' ? record.end.reason : record.end.verdict,
        at: new Date(record.end.at).toISOString(),
      },
    }),
  };
}
