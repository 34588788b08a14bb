import { describe, expect, it } from 'vitest';
import type { BrokerRecord } from '../../src/registry/record.ts';
import { type Facts, judgeRecord, VERDICTS, type Verdict, type VerdictPolicy } from '../../src/supervisor/verdict.ts';
import { sampleRecord } from '../support/sample-record.ts';

const POLICY: VerdictPolicy = { startMs: 15_000, shutdownMs: 10_000 };
const STARTED_AT = 1_000_000;

function facts(changes: Partial<Facts>, record: Partial<BrokerRecord> = {}): Facts {
  return {
    reading: { kind: 'record', record: sampleRecord({ startedAt: STARTED_AT, ...record }) },
    isOfHere: true,
    broker: 'ours',
    starter: 'ours',
    hello: 'ok',
    directory: 'same',
    isDirectorySurelyGone: false,
    livingChildren: 0,
    unclearChildren: 0,
    now: STARTED_AT + 1_000,
    ...changes,
  };
}

interface Case {
  title: string;
  facts: Facts;
  expected: Verdict;
  why: string;
}

const IDLE = { phase: 'stopped', end: { by: 'broker', reason: 'idle', at: 1 } } as const;
const REAPED = { phase: 'stopped', end: { by: 'reap', verdict: 'stale', at: 1, generation: 2 } } as const;

const LEFT_ALONE: Case[] = [
  {
    title: 'does not know a torn record',
    facts: facts({ reading: { kind: 'torn', why: 'not valid JSON' } }),
    expected: 'unknown',
    why: 'the record cannot be read: not valid JSON',
  },
  {
    title: 'does not know a record of a newer version',
    facts: facts({ reading: { kind: 'newer', schema: 7 } }),
    expected: 'unknown',
    why: 'written by a newer version (schema 7)',
  },
  {
    title: 'calls a record of another machine foreign, although its process seems dead and its directory gone',
    facts: facts({ isOfHere: false, broker: 'dead', isDirectorySurelyGone: true, livingChildren: 2 }),
    expected: 'foreign',
    why: 'of another machine, pid namespace or user',
  },
  {
    title: 'calls a tombstone of another machine foreign',
    facts: facts({ isOfHere: false }, IDLE),
    expected: 'foreign',
    why: 'of another machine, pid namespace or user',
  },
  {
    title: 'does not know a broker that cannot be identified, although its directory is gone',
    facts: facts({ broker: 'unknown', isDirectorySurelyGone: true, directory: 'gone' }),
    expected: 'unknown',
    why: 'its process cannot be identified',
  },
  {
    title: 'does not know a serving record that names no process',
    facts: facts({ broker: undefined }),
    expected: 'unknown',
    why: 'its process cannot be identified',
  },
  {
    title: 'does not know a dead broker with a child that cannot be identified',
    facts: facts({ broker: 'dead', unclearChildren: 1 }),
    expected: 'unknown',
    why: 'its process is gone; a child of it cannot be identified',
  },
];

const ENDED: Case[] = [
  { title: 'calls a tombstone stopped', facts: facts({ broker: 'dead' }, IDLE), expected: 'stopped', why: 'ended: idle' },
  {
    title: 'calls a tombstone of a reap stopped',
    facts: facts({ broker: 'dead' }, REAPED),
    expected: 'stopped',
    why: 'ended: stale',
  },
  {
    title: 'calls a tombstone whose children live an orphan',
    facts: facts({ broker: 'dead', livingChildren: 2 }, IDLE),
    expected: 'orphan',
    why: 'ended (idle) and left 2 of its children',
  },
  {
    title: 'calls a record without its process stale',
    facts: facts({ broker: 'dead', hello: undefined }),
    expected: 'stale',
    why: 'its process is gone',
  },
  {
    title: 'calls a record whose pid was reused stale',
    facts: facts({ broker: 'reused', hello: undefined }),
    expected: 'stale',
    why: 'its pid belongs to another process now',
  },
  {
    title: 'calls a dead broker with living children an orphan, an unclear one beside them or not',
    facts: facts({ broker: 'dead', livingChildren: 1, unclearChildren: 1 }),
    expected: 'orphan',
    why: 'its process is gone; 1 of its children live',
  },
  {
    title: 'calls a reused pid with living children an orphan',
    facts: facts({ broker: 'reused', livingChildren: 3 }),
    expected: 'orphan',
    why: 'its pid belongs to another process now; 3 of its children live',
  },
  {
    title: 'waits for a start whose starter died before it named a broker: the broker may be on its way',
    facts: facts({ broker: undefined, starter: 'dead', hello: undefined }, { phase: 'starting' }),
    expected: 'starting',
    why: 'starting',
  },
  {
    title: 'calls it stale once the start deadline is over',
    facts: facts({ broker: undefined, starter: 'dead', hello: undefined, now: STARTED_AT + 15_001 }, { phase: 'starting' }),
    expected: 'stale',
    why: 'its process is gone',
  },
];

const ALIVE: Case[] = [
  { title: 'calls a broker that answers live', facts: facts({}), expected: 'live', why: 'answers' },
  {
    title: 'calls a broker live whose directory cannot be looked at',
    facts: facts({ directory: 'unknown' }),
    expected: 'live',
    why: 'answers; its directory cannot be looked at',
  },
  ...(['gone', 'replaced', 'ambiguous'] as const).map(
    (directory): Case => ({
      title: `calls a broker live whose directory looks ${directory} at one look`,
      facts: facts({ directory }),
      expected: 'live',
      why: `answers; its directory looks ${directory}`,
    }),
  ),
  {
    title: 'calls a broker without an answer wedged',
    facts: facts({ hello: 'none' }),
    expected: 'wedged',
    why: 'alive, and does not answer hello',
  },
  {
    title: 'calls a start with a living starter starting',
    facts: facts({ broker: undefined, hello: undefined }, { phase: 'starting' }),
    expected: 'starting',
    why: 'starting',
  },
  {
    title: 'calls a start within its deadline starting',
    facts: facts({ starter: 'dead', hello: undefined, now: STARTED_AT + 15_000 }, { phase: 'starting' }),
    expected: 'starting',
    why: 'starting',
  },
  {
    title: 'calls a start beyond its deadline wedged',
    facts: facts({ hello: undefined, now: STARTED_AT + 20_000 }, { phase: 'starting' }),
    expected: 'wedged',
    why: 'starting for 20 s',
  },
  {
    title: 'calls a broker that leaves draining',
    facts: facts({ hello: undefined, now: STARTED_AT + 70_000 }, { phase: 'draining', drainingAt: STARTED_AT + 60_000 }),
    expected: 'draining',
    why: 'leaving',
  },
  {
    title: 'calls a broker that leaves for too long wedged',
    facts: facts({ hello: undefined, now: STARTED_AT + 72_000 }, { phase: 'draining', drainingAt: STARTED_AT + 60_000 }),
    expected: 'wedged',
    why: 'leaving for 12 s',
  },
  {
    title: 'counts from the start when a leaving broker does not say since when',
    facts: facts({ hello: undefined, now: STARTED_AT + 72_000 }, { phase: 'draining' }),
    expected: 'wedged',
    why: 'leaving for 72 s',
  },
];

const CWD_GONE: Case[] = (
  [
    ['live', { hello: 'ok' }, {}],
    ['wedged', { hello: 'none' }, {}],
    ['draining', { hello: undefined }, { phase: 'draining', drainingAt: STARTED_AT }],
    ['starting', { hello: undefined }, { phase: 'starting' }],
  ] as const
).map(([otherwise, changes, record]) => ({
  title: `says cwd-gone rather than ${otherwise} when the directory is surely gone`,
  facts: facts({ ...changes, directory: 'gone', isDirectorySurelyGone: true }, record),
  expected: 'cwd-gone',
  why: 'its directory is gone',
}));

const ALL = [...LEFT_ALONE, ...ENDED, ...ALIVE, ...CWD_GONE];

describe('judgeRecord', () => {
  it.each(ALL.map((one) => [one.title, one] as const))('%s', (_, { facts: given, expected, why }) => {
    expect(judgeRecord(given, POLICY)).toEqual({ verdict: expected, why });
  });

  it('has a case for every verdict', () => {
    expect([...new Set(ALL.map(({ expected }) => expected))].sort()).toEqual([...VERDICTS].sort());
  });
});
