/** A record as a broker writes it, with what a test wants to be different. */
import type { ProcessIdentity } from '../../src/process/identity.ts';
import { type BrokerRecord, RECORD_SCHEMA } from '../../src/registry/record.ts';

export const SAMPLE_IDENTITY: ProcessIdentity = { pid: 4711, startTime: '100', bootId: 'boot', pidNamespace: 'pid:[1]' };

export function sampleRecord(changes: Partial<BrokerRecord> = {}): BrokerRecord {
  return {
    schema: RECORD_SCHEMA,
    generation: 1,
    instance: '0123456789abcdef',
    token: 'secret',
    phase: 'serving',
    machineId: 'machine',
    uid: 1000,
    starter: SAMPLE_IDENTITY,
    broker: { ...SAMPLE_IDENTITY, pid: 4712 },
    script: '/opt/bin/brokerd.js',
    version: '0.1.0',
    protocol: 1,
    cwd: { path: '/home/me/work', dev: '1', ino: '2', birthtimeNs: '3' },
    socket: '/run/1.sock',
    startedAt: 1_000_000,
    children: [],
    ...changes,
  };
}

/** The same without the named fields. */
export function sampleRecordWithout(...names: Array<keyof BrokerRecord>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(sampleRecord()).filter(([name]) => !(names as string[]).includes(name)));
}
