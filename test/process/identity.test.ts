import { describe, expect, it } from 'vitest';
import {
  type Here,
  identify,
  judgeIdentity,
  type Observation,
  observe,
  ownIdentity,
  type ProcessIdentity,
  parsePsLine,
  parseStat,
  readHere,
  verifyIdentity,
} from '../../src/process/identity.ts';

/** Larger than any pid Linux gives. */
const NO_PID = 2 ** 22 + 1;

/** A line of /proc/PID/stat: 52 fields, of which the second is the command in parentheses. */
function statLine(command: string, state = 'S'): string {
  const rest = ['1', '4242', '4242', ...Array.from({ length: 15 }, (_, at) => String(at)), '987654321', ...Array(30).fill('0')];
  return `4242 (${command}) ${state} ${rest.join(' ')}\n`;
}

const ALIVE: Observation = { state: 'alive', startTime: '987654321', ppid: 1, pgid: 4242, isStopped: false };

describe('parseStat', () => {
  it.each([
    'node',
    'a b c',
    ')',
    '(',
    'x) Z 1 2 3',
    '((sd-pam))',
    'tab\there',
    'new\nline',
    'é',
    '',
    ' ',
    ') R 7 7 7 (',
    '0 (1) S',
  ])('is not misled by a command named %j', (command) => {
    expect(parseStat(statLine(command))).toEqual(ALIVE);
  });

  it.each(['R', 'S', 'D', 'I'])('takes state %s for alive', (state) => {
    expect(parseStat(statLine('node', state))).toEqual(ALIVE);
  });

  it.each(['T', 't'])('takes state %s for alive and stopped', (state) => {
    expect(parseStat(statLine('node', state))).toEqual({ ...ALIVE, isStopped: true });
  });

  it.each(['Z', 'X'])('takes state %s for a zombie, whatever its name', (state) => {
    expect(parseStat(statLine('x) S 1', state))).toEqual({ state: 'zombie', startTime: '987654321' });
  });

  it.each(['', '4242', '4242 (node) S 1 2', '4242 (node'])('cannot read %j', (text) => {
    expect(parseStat(text)).toEqual({ state: 'unreadable', errno: 'EBADSTAT' });
  });
});

describe('parsePsLine', () => {
  const LSTART = 'Mon Jan  5 10:11:12 2026';

  it.each([
    ['S', false],
    ['Ss+', false],
    ['R', false],
    ['T', true],
    ['TN', true],
  ])('reads state %s', (stat, isStopped) => {
    expect(parsePsLine(`    1  4242 ${stat}   ${LSTART}    \n`)).toEqual({
      state: 'alive',
      startTime: LSTART,
      ppid: 1,
      pgid: 4242,
      isStopped,
    });
  });

  it('knows a zombie', () => {
    expect(parsePsLine(`1 4242 Z+ ${LSTART}`)).toEqual({ state: 'zombie', startTime: LSTART });
  });

  it.each(['', '\n', 'ps: illegal option', '1 2', '1 2 S'])('cannot read %j', (line) => {
    expect(parsePsLine(line)).toEqual({ state: 'unreadable', errno: 'EPS' });
  });
});

describe('judgeIdentity', () => {
  const recorded: ProcessIdentity = { pid: 4242, startTime: '987654321', bootId: 'now', pidNamespace: 'here' };
  const here: Here = { bootId: 'now', pidNamespace: 'here' };
  const zombie: Observation = { state: 'zombie', startTime: '987654321' };
  const refused: Observation = { state: 'unreadable', errno: 'EPERM' };

  it.each([
    ['ours', 'the process as recorded', recorded, ALIVE],
    ['ours', 'the process as recorded, stopped', recorded, { ...ALIVE, isStopped: true }],
    ['ours', 'the process under another parent', recorded, { ...ALIVE, ppid: 9 }],
    ['reused', 'a process that started at another time', recorded, { ...ALIVE, startTime: '987654322' }],
    ['reused', 'a start time that is equal only as a number', recorded, { ...ALIVE, startTime: '0987654321' }],
    ['dead', 'no process', recorded, { state: 'absent' }],
    ['dead', 'a zombie', recorded, zombie],
    ['unknown', 'a process that cannot be read', recorded, refused],
    ['dead', 'a living pid of an earlier boot', { ...recorded, bootId: 'before' }, ALIVE],
    ['dead', 'an earlier boot in another namespace', { ...recorded, bootId: 'before', pidNamespace: 'there' }, ALIVE],
    ['unknown', 'a living pid of another namespace', { ...recorded, pidNamespace: 'there' }, ALIVE],
    ['unknown', 'an absent pid of another namespace', { ...recorded, pidNamespace: 'there' }, { state: 'absent' }],
  ] as const)('says %s of %s', (expected, _, identity, observation) => {
    expect(judgeIdentity(identity, observation, here)).toBe(expected);
  });
});

describe('this process', () => {
  it('is alive, and has an identity that stays', () => {
    expect(observe(process.pid)).toMatchObject({ state: 'alive', ppid: process.ppid, isStopped: false });
    expect(ownIdentity()).toEqual({ ...ownIdentity(), pid: process.pid, ...readHere() });
    expect(verifyIdentity(ownIdentity())).toBe('ours');
  });

  it('is not taken for another that had its pid', () => {
    expect(verifyIdentity({ ...ownIdentity(), startTime: '1' })).toBe('reused');
  });
});

describe('a pid that nobody has', () => {
  it('is absent, and has no identity', () => {
    expect(observe(NO_PID)).toEqual({ state: 'absent' });
    expect(identify(NO_PID)).toBeUndefined();
    expect(verifyIdentity({ ...ownIdentity(), pid: NO_PID })).toBe('dead');
  });
});
