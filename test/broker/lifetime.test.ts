import { describe, expect, it } from 'vitest';
import { isNeeded, type Judgement, judge, type LifetimePolicy, type Vitals } from '../../src/broker/lifetime.ts';

const POLICY: LifetimePolicy = {
  graceMs: 60_000,
  heldGraceMs: 5_000,
  helloCountsMs: 5_000,
  holdMs: 0,
  latenessMs: 500,
  lateRecheckMs: 5_000,
};

const QUIET: Vitals = {
  attachedClients: 0,
  helloAt: [],
  holdsTakenAt: [],
  lastHoldGivenBackAt: undefined,
  quietSinceAt: 1_000_000,
  stop: undefined,
  isSuperseded: false,
  latenessMs: 0,
  secondChanceUntilAt: undefined,
};

/** Since the quiet began. */
const at = (ms: number): number => 1_000_000 + ms;

interface Case {
  title: string;
  vitals: Partial<Vitals>;
  policy?: Partial<LifetimePolicy>;
  now: number;
  expected: Judgement;
}

const recheck = (ms: number, isSecondChance = false): Judgement => ({ kind: 'recheck', at: at(ms), isSecondChance });
const stay = (reasons: string[], recheckAt?: number): Judgement => ({
  kind: 'stay',
  reasons,
  ...(recheckAt !== undefined && { recheckAt: at(recheckAt) }),
});
const exit = (reason: Extract<Judgement, { kind: 'exit' }>['reason']): Judgement => ({ kind: 'exit', reason });

const NEEDED: Case[] = [
  {
    title: 'stays for one client',
    vitals: { attachedClients: 1, quietSinceAt: undefined },
    now: at(0),
    expected: stay(['1 client attached']),
  },
  {
    title: 'stays for two clients however long it has been',
    vitals: { attachedClients: 2, quietSinceAt: undefined },
    now: at(1e9),
    expected: stay(['2 clients attached']),
  },
  {
    title: 'stays for a client that said hello just now, and asks again when that is over',
    vitals: { helloAt: [at(-4_999)] },
    now: at(0),
    expected: stay(['1 client said hello just now'], 1),
  },
  {
    title: 'asks again at the first of several ends',
    vitals: { helloAt: [at(-1_000), at(-3_000)], attachedClients: 1 },
    now: at(0),
    expected: stay(['1 client attached', '2 clients said hello just now'], 2_000),
  },
  {
    title: 'does not count a hello that is as old as it may be',
    vitals: { helloAt: [at(-5_000)] },
    now: at(0),
    expected: recheck(60_000),
  },
  {
    title: 'does not stay for a hold where holds do not keep it',
    vitals: { holdsTakenAt: [at(0)] },
    now: at(0),
    expected: recheck(60_000),
  },
  {
    title: 'does not stay for a hold dated into the future where holds do not keep it',
    vitals: { holdsTakenAt: [at(3_600_000)] },
    now: at(0),
    expected: recheck(60_000),
  },
  {
    title: 'stays for a hold as long as holds keep it',
    vitals: { holdsTakenAt: [at(-1_000)] },
    policy: { holdMs: 10_000 },
    now: at(0),
    expected: stay(['held by 1 host session'], 9_000),
  },
  {
    title: 'does not stay for a hold that is over',
    vitals: { holdsTakenAt: [at(-10_000)] },
    policy: { holdMs: 10_000 },
    now: at(0),
    expected: recheck(60_000),
  },
  {
    title: 'stays although superseded while a client is attached',
    vitals: { attachedClients: 1, isSuperseded: true, quietSinceAt: undefined },
    now: at(0),
    expected: stay(['1 client attached']),
  },
];

const UNNEEDED: Case[] = [
  { title: 'waits for the end of the grace', vitals: {}, now: at(59_999), expected: recheck(60_000) },
  { title: 'exits once the grace is over', vitals: {}, now: at(60_000), expected: exit('idle') },
  { title: 'exits at once without a grace', vitals: {}, policy: { graceMs: 0 }, now: at(0), expected: exit('idle') },
  {
    title: 'counts from now when no quiet has begun',
    vitals: { quietSinceAt: undefined },
    now: at(7),
    expected: recheck(60_007),
  },
  {
    title: 'leaves without grace when superseded',
    vitals: { isSuperseded: true },
    now: at(0),
    expected: exit('superseded'),
  },
  {
    title: 'shortens the grace after the last hold was given back',
    vitals: { lastHoldGivenBackAt: at(2_000) },
    now: at(3_000),
    expected: recheck(7_000),
  },
  {
    title: 'counts the short grace from the quiet when the hold was given back before it',
    vitals: { lastHoldGivenBackAt: at(-9_000) },
    now: at(0),
    expected: recheck(5_000),
  },
  {
    title: 'never makes the grace longer by a hold given back late',
    vitals: { lastHoldGivenBackAt: at(58_000) },
    now: at(59_000),
    expected: recheck(60_000),
  },
  {
    title: 'asks once more when the timer came late',
    vitals: { latenessMs: 501 },
    now: at(60_501),
    expected: recheck(65_501, true),
  },
  {
    title: 'does not mind a timer that is hardly late',
    vitals: { latenessMs: 500 },
    now: at(60_500),
    expected: exit('idle'),
  },
  {
    title: 'exits when the second chance comes late too',
    vitals: { latenessMs: 9_000, secondChanceUntilAt: at(65_501) },
    now: at(70_000),
    expected: exit('idle'),
  },
  {
    title: 'keeps to the second chance, whoever asks meanwhile',
    vitals: { secondChanceUntilAt: at(65_501) },
    now: at(61_000),
    expected: recheck(65_501),
  },
  {
    title: 'needs no second chance before the grace is over',
    vitals: { latenessMs: 9_000 },
    now: at(10_000),
    expected: recheck(60_000),
  },
];

const STOPPED: Case[] = (['signal', 'requested', 'cwd-gone', 'fatal', 'socket-lost'] as const).map((reason) => ({
  title: `exits with ${reason} although clients are attached and it is superseded`,
  vitals: { stop: reason, attachedClients: 3, helloAt: [at(0)], isSuperseded: true, quietSinceAt: undefined },
  now: at(0),
  expected: exit(reason),
}));

const titled = (...cases: Case[]): Array<[string, Case]> => cases.map((one) => [one.title, one]);

describe('judge', () => {
  it.each(titled(...NEEDED, ...UNNEEDED, ...STOPPED))('%s', (_, { vitals, policy, now, expected }) => {
    expect(judge({ ...QUIET, ...vitals }, { ...POLICY, ...policy }, now)).toEqual(expected);
  });

  it.each(titled(...NEEDED, ...UNNEEDED))('says the same as isNeeded where it %s', (_, { vitals, policy, now, expected }) => {
    expect(isNeeded({ ...QUIET, ...vitals }, { ...POLICY, ...policy }, now)).toBe(expected.kind === 'stay');
  });
});
