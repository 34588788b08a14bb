/** Keeps this run's own record true on disk: one write at a time, each of the whole present state. */

import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { BrokerRecord, ChildRecord, ExitReason } from '../registry/record.ts';
import { updateRecord } from '../registry/records.ts';

export class RecordKeeper {
  readonly #folder: string;
  readonly #log: Log;
  #record: BrokerRecord;
  #writing: Promise<void> = Promise.resolve();

  constructor(folder: string, record: BrokerRecord, log: Log) {
    this.#folder = folder;
    this.#record = record;
    this.#log = log;
  }

  get record(): Readonly<BrokerRecord> {
    return this.#record;
  }

  /** Changes the record and writes it. @throws BrokerError STORE_FAILED; the change then stays in memory only. */
  update(change: Partial<BrokerRecord>): Promise<void> {
    this.#record = { ...this.#record, ...change };
    return this.write();
  }

  /** Writes the present state. Concurrent calls queue; each writes what is true when its turn comes. */
  write(): Promise<void> {
    const next = this.#writing.catch(() => undefined).then(() => updateRecord(this.#folder, this.#record));
    this.#writing = next;
    return next;
  }

  /** As `update`, for the way out: a disk that is full must not keep a broker from leaving. */
  async tryUpdate(change: Partial<BrokerRecord>): Promise<void> {
    try {
      await this.update(change);
    } catch (error) {
      this.#log.error('record.write-failed', { message: describeError(error) });
    }
  }

  /** Names a child before it runs. When the write fails the child is not named, and must not run. */
  async addChild(child: ChildRecord): Promise<void> {
    try {
      await this.update({ children: [...this.#record.children, child] });
    } catch (error) {
      this.#record = { ...this.#record, children: this.#record.children.filter((one) => one.id !== child.id) };
      throw error;
    }
  }

  async replaceChild(child: ChildRecord): Promise<void> {
    await this.tryUpdate({ children: this.#record.children.map((one) => (one.id === child.id ? child : one)) });
  }

  async removeChild(id: string): Promise<void> {
    await this.tryUpdate({ children: this.#record.children.filter((one) => one.id !== id) });
  }

  /** Turns the record into its tombstone. Children that could not be stopped stay named in it. */
  async bury(reason: ExitReason, detail?: string): Promise<void> {
    await this.tryUpdate({
      phase: 'stopped',
      end: { by: 'broker', reason, at: Date.now(), ...(detail !== undefined && { detail }) },
    });
  }
}
