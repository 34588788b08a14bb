import { describe, expect, it } from 'vitest';
import { judgeOwner, type OwnerAction, type OwnerFacts, type OwnerPolicy } from '../../src/client/judge-owner.ts';
import type { BrokerRecord } from '../../src/registry/record.ts';
import { sampleRecord } from '../support/sample-record.ts';

const POLICY: OwnerPolicy = { startMs: 15_000, wedgedMs: 5_000, takeoverEveryMs: 600_000 };
const STARTED_AT = 1_000_000;

const JOIN: OwnerAction = { kind: 'join' };
const START: OwnerAction = { kind: 'start', isTakeover: false };
const TAKE_OVER: OwnerAction = { kind: 'start', isTakeover: true };
const WAIT_STARTING: OwnerAction = { kind: 'wait', why: 'starting' };
const WAIT_SILENT: OwnerAction = { kind: 'wait', why: 'silent' };
const GIVE_UP: OwnerAction = { kind: 'give-up' };

function facts(changes: Partial<OwnerFacts>, record: Partial<BrokerRecord> = {}): OwnerFacts {
  return {
    reading: { kind: 'record', record: sampleRecord({ startedAt: STARTED_AT, ...record }) },
    broker: 'ours',
    starter: 'ours',
    dialed: 'silent',
    waitedMs: 0,
    now: STARTED_AT + 1_000,
    ...changes,
  };
}

interface Case {
  title: string;
  facts: OwnerFacts;
  expected: OwnerAction;
}

const END = { by: 'broker', reason: 'idle', at: 1 } as const;

const CASES: Case[] = [
  { title: 'joins a broker that answers', facts: facts({ dialed: 'ok' }), expected: JOIN },
  {
    title: 'joins a broker that answers, whatever its process looks like',
    facts: facts({ dialed: 'ok', broker: 'unknown' }),
    expected: JOIN,
  },
  {
    title: 'starts the first generation where there is no record',
    facts: facts({ reading: undefined, broker: undefined, starter: undefined, dialed: undefined }),
    expected: START,
  },
  {
    title: 'starts the next one after a record that cannot be read',
    facts: facts({ reading: { kind: 'torn', why: 'not valid JSON' }, broker: undefined, dialed: undefined }),
    expected: START,
  },
  {
    title: 'starts the next one after a record of a newer version',
    facts: facts({ reading: { kind: 'newer', schema: 9 }, broker: undefined, dialed: undefined }),
    expected: START,
  },
  { title: 'starts the next one after a tombstone', facts: facts({}, { phase: 'stopped', end: END }), expected: START },
  { title: 'starts the next one beside a broker that is leaving', facts: facts({}, { phase: 'draining' }), expected: START },
  {
    title: 'starts the next one when the broker says that it takes nobody',
    facts: facts({ dialed: 'closing' }),
    expected: START,
  },
  { title: 'starts the next one when the broker refuses', facts: facts({ dialed: 'refused' }), expected: START },
  { title: 'starts the next one after a dead broker', facts: facts({ broker: 'dead', dialed: 'absent' }), expected: START },
  {
    title: 'starts the next one after a broker whose pid was reused',
    facts: facts({ broker: 'reused', dialed: 'absent' }),
    expected: START,
  },
  {
    title: 'is not told by a dead starter while the broker serves',
    facts: facts({ starter: 'dead' }),
    expected: WAIT_SILENT,
  },
];

const STARTING: Case[] = [
  {
    title: 'waits for a broker that has just been started',
    facts: facts({ broker: undefined, dialed: undefined }, { phase: 'starting' }),
    expected: WAIT_STARTING,
  },
  {
    title: 'waits for a starting broker that lives, although its starter is gone',
    facts: facts({ starter: 'dead', dialed: 'absent' }, { phase: 'starting' }),
    expected: WAIT_STARTING,
  },
  {
    title: 'waits for a starting broker whose starter cannot be identified',
    facts: facts({ broker: undefined, starter: 'unknown', dialed: undefined }, { phase: 'starting' }),
    expected: WAIT_STARTING,
  },
  ...(['dead', 'reused'] as const).map((starter) => ({
    title: `starts the next one when the starter is ${starter} before any broker was named`,
    facts: facts({ broker: undefined, starter, dialed: undefined }, { phase: 'starting' }),
    expected: START,
  })),
  {
    title: 'starts the next one when the starting broker is dead',
    facts: facts({ broker: 'dead', dialed: 'absent' }, { phase: 'starting' }),
    expected: START,
  },
  {
    title: 'waits until the very start deadline',
    facts: facts({ dialed: 'absent', waitedMs: 15_000, now: STARTED_AT + 15_000 }, { phase: 'starting' }),
    expected: WAIT_STARTING,
  },
  {
    title: 'starts the next one when the start is overdue by the record',
    facts: facts({ dialed: 'absent', now: STARTED_AT + 15_001 }, { phase: 'starting' }),
    expected: START,
  },
  {
    title: 'starts the next one when the start is overdue by its own clock, whatever the record says',
    facts: facts({ dialed: 'absent', waitedMs: 15_001, now: STARTED_AT - 3_600_000 }, { phase: 'starting' }),
    expected: START,
  },
];

const SILENT: Case[] = [
  ...(['silent', 'busy', 'absent', undefined] as const).map((dialed) => ({
    title: `has patience with a living owner (dial: ${dialed})`,
    facts: facts({ dialed, waitedMs: 4_999 }),
    expected: WAIT_SILENT,
  })),
  {
    title: 'has patience with an owner whose process cannot be identified',
    facts: facts({ broker: 'unknown', dialed: 'absent' }),
    expected: WAIT_SILENT,
  },
  {
    title: 'has patience with a serving record that names no process',
    facts: facts({ broker: undefined }),
    expected: WAIT_SILENT,
  },
  { title: 'takes over once patience is over', facts: facts({ waitedMs: 5_000 }), expected: TAKE_OVER },
  {
    title: 'gives up when another owner was passed over lately',
    facts: facts({ waitedMs: 5_000, now: STARTED_AT + 600_000 }, { tookOverAt: STARTED_AT }),
    expected: GIVE_UP,
  },
  {
    title: 'takes over again when that was long ago',
    facts: facts({ waitedMs: 5_000, now: STARTED_AT + 600_001 }, { tookOverAt: STARTED_AT }),
    expected: TAKE_OVER,
  },
];

describe('judgeOwner', () => {
  it.each([...CASES, ...STARTING, ...SILENT].map((one) => [one.title, one] as const))('%s', (_, { facts: given, expected }) => {
    expect(judgeOwner(given, POLICY)).toEqual(expected);
  });
});
