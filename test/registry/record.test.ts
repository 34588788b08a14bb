import { describe, expect, it } from 'vitest';
import { EXIT_REASONS, PHASES, parseRecord, RECORD_SCHEMA } from '../../src/registry/record.ts';
import { SAMPLE_IDENTITY, sampleRecord, sampleRecordWithout } from '../support/sample-record.ts';

const CHILD = {
  id: 'u1',
  kind: 'upstream',
  pid: 900,
  startTime: '1',
  pgid: 900,
  command: ['node', 'server.js'],
  startedAt: 5,
  known: [{ pid: 901, startTime: '2' }],
} as const;

const read = (value: unknown): ReturnType<typeof parseRecord> => parseRecord(JSON.stringify(value));

describe('parseRecord', () => {
  it('reads back what was written', () => {
    const record = sampleRecord({ children: [{ ...CHILD, command: [...CHILD.command], known: [...CHILD.known] }] });
    expect(read(record)).toEqual({ kind: 'record', record });
  });

  it('reads a record that names no broker yet', () => {
    expect(read(sampleRecordWithout('broker')).kind).toBe('record');
  });

  it('keeps fields it does not know', () => {
    expect(read({ ...sampleRecord(), later: 1 })).toMatchObject({ kind: 'record', record: { later: 1 } });
  });

  it.each(PHASES.filter((phase) => phase !== 'stopped'))('reads the phase %s', (phase) => {
    expect(read(sampleRecord({ phase })).kind).toBe('record');
  });

  it.each(EXIT_REASONS)('reads a tombstone with the reason %s', (reason) => {
    expect(read(sampleRecord({ phase: 'stopped', end: { by: 'broker', reason, at: 1 } })).kind).toBe('record');
  });

  it('reads a tombstone of a reap', () => {
    expect(read(sampleRecord({ phase: 'stopped', end: { by: 'reap', verdict: 'stale', at: 1, generation: 2 } })).kind).toBe(
      'record',
    );
  });

  it.each([
    ['nothing', ''],
    ['a text cut off anywhere', JSON.stringify(sampleRecord()).slice(0, -20)],
    ['zero bytes', '\0'.repeat(200)],
    ['no JSON', 'pid 4711'],
    ['a list', '[]'],
    ['null', 'null'],
    ['a number', '4711'],
    ['an object of something else', '{"pid": 4711}'],
  ])('says torn of %s', (_, text) => {
    expect(parseRecord(text).kind).toBe('torn');
  });

  it('says torn of a record cut off at any byte', () => {
    const text = JSON.stringify(sampleRecord());
    for (let length = 0; length < text.length; length += 1) expect(parseRecord(text.slice(0, length)).kind).toBe('torn');
  });

  it('says newer of a higher schema, whatever else the record holds', () => {
    expect(read({ schema: RECORD_SCHEMA + 1, phase: 17 })).toEqual({ kind: 'newer', schema: RECORD_SCHEMA + 1 });
  });

  it.each([
    ['schema', { schema: -1 }],
    ['generation', { generation: 0 }],
    ['generation', { generation: 1.5 }],
    ['generation', { generation: '1' }],
    ['instance', { instance: '../../etc/passwd' }],
    ['instance', { instance: 'short' }],
    ['token', { token: 7 }],
    ['phase', { phase: 'running' }],
    ['uid', { uid: -1 }],
    ['starter', { starter: { ...SAMPLE_IDENTITY, pid: 0 } }],
    ['starter', { starter: { ...SAMPLE_IDENTITY, pid: 1 } }],
    ['starter', { starter: { ...SAMPLE_IDENTITY, pid: -1 } }],
    ['starter', { starter: { ...SAMPLE_IDENTITY, startTime: 100 } }],
    ['broker', { broker: { pid: 4711 } }],
    ['broker', { broker: null }],
    ['cwd', { cwd: { path: '/work' } }],
    ['socket', { socket: null }],
    ['startedAt', { startedAt: 'now' }],
    ['drainingAt', { drainingAt: 'now' }],
    ['children', { children: {} }],
    ['children', { children: [{ ...CHILD, pid: 1 }] }],
    ['children', { children: [{ ...CHILD, pgid: 0 }] }],
    ['children', { children: [{ ...CHILD, pgid: 1 }] }],
    ['children', { children: [{ ...CHILD, pgid: -1 }] }],
    ['children', { children: [{ ...CHILD, kind: 'other' }] }],
    ['children', { children: [{ ...CHILD, command: 'node' }] }],
    ['children', { children: [{ ...CHILD, known: [{ pid: 0, startTime: '1' }] }] }],
    ['children', { children: [null] }],
    ['end', { phase: 'stopped' }],
    ['end', { phase: 'serving', end: { by: 'broker', reason: 'idle', at: 1 } }],
    ['end', { phase: 'stopped', end: { by: 'broker', reason: 'bored', at: 1 } }],
    ['end', { phase: 'stopped', end: { by: 'nobody', reason: 'idle', at: 1 } }],
    ['end', { phase: 'stopped', end: { by: 'broker', reason: 'idle' } }],
  ])('says which field is wrong: %s in %j', (name, changes) => {
    expect(read({ ...sampleRecord(), ...changes })).toEqual({ kind: 'torn', why: `bad field: ${name}` });
  });

  it.each(['generation', 'instance', 'token', 'phase', 'starter', 'cwd', 'socket', 'startedAt', 'children'] as const)(
    'says torn of a record without %s',
    (name) => {
      expect(read(sampleRecordWithout(name))).toEqual({ kind: 'torn', why: `bad field: ${name}` });
    },
  );

  it('cannot be led astray by names every object has', () => {
    expect(parseRecord('{"schema": 1, "__proto__": {"phase": "serving"}}').kind).toBe('torn');
  });
});
