/** What a broker says of itself: who uses it, why it is up, when it would exit. Touches nothing. */
import type { BrokerRecord } from '../registry/record.ts';
import type { StatusResult, UpstreamStatus } from '../rpc/control.ts';
import type { ControlConnection } from './control.ts';
import type { Judgement } from './lifetime.ts';

export interface StatusFacts {
  record: Readonly<BrokerRecord>;
  connections: readonly ControlConnection[];
  upstreams: UpstreamStatus[];
  judgement: Judgement;
  /** Monotonic ms, as `now`. */
  quietSinceAt: number | undefined;
  exitsAt: number | undefined;
  directory: string;
  watch: string;
  now: number;
}

export function describeStatus(facts: StatusFacts): StatusResult {
  const { record, connections, quietSinceAt, exitsAt, now } = facts;
  const clientList = connections.flatMap(({ client, attachedTo, isAttached }) => {
    if (client === undefined || !isAttached) return [];
    const since = new Date(client.sinceAt).toISOString();
    return [{ pid: client.pid, name: client.name, ...(attachedTo && { upstream: attachedTo }), since }];
  });
  const toIso = (at: number): string => new Date(Date.now() + at - now).toISOString();
  return {
    cwd: record.cwd.path,
    pid: process.pid,
    instance: record.instance,
    generation: record.generation,
    version: record.version,
    phase: record.phase,
    startedAt: new Date(record.startedAt).toISOString(),
    clients: clientList.length,
    clientList,
    upstreams: facts.upstreams,
    why: describeJudgement(facts.judgement),
    ...(quietSinceAt !== undefined && { idleSince: toIso(quietSinceAt) }),
    ...(exitsAt !== undefined && { exitsAt: toIso(exitsAt) }),
    directory: facts.directory,
    watch: facts.watch,
  };
}

function describeJudgement(judgement: Judgement): string[] {
  if (judgement.kind === 'stay') return judgement.reasons;
  return [judgement.kind === 'recheck' ? 'within its grace' : `leaving: ${judgement.reason}`];
}
