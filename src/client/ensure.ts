/**
 * Connects to the broker of a root, or starts exactly one.
 *
 * The warm path reads the highest record, dials and says hello; it takes no lock. Otherwise the next
 * generation is created by an exclusive link, which one starter wins and all others join. The start
 * lock around it, taken where an owner may still be there, only saves work. Nobody waits for another process while holding it, nothing is
 * unlinked to take over, and no process is signalled here: an owner that does not answer is passed
 * over, not ended.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Config, FIXED } from '../config.ts';
import { BrokerError, describeError } from '../errors.ts';
import { binScript, VERSION } from '../installation.ts';
import { ownIdentity, verifyIdentity } from '../process/identity.ts';
import { type DirectoryIdentity, readDirectoryIdentity } from '../registry/directory.ts';
import {
  brokerKey,
  canonicalRoot,
  makeStateDirs,
  openRuntimeDir,
  readMachineId,
  type StateLayout,
  socketNames,
  stateLayout,
} from '../registry/paths.ts';
import { type BrokerRecord, RECORD_SCHEMA } from '../registry/record.ts';
import { createRecord, type FoundRecord, readGeneration, readHighest, updateRecord } from '../registry/records.ts';
import { withStartLock } from '../registry/start-lock.ts';
import type { Connection } from '../rpc/connection.ts';
import { type HelloResult, PROTOCOL } from '../rpc/control.ts';
import { type DialOutcome, dial } from './dial.ts';
import { judgeOwner, type OwnerAction } from './judge-owner.ts';

export interface EnsureRequest {
  /** Any spelling of the directory. */
  cwd: string;
  config: Config;
  /** Where knobs and folders of a started broker come from; default: this process's environment. */
  env?: Readonly<Record<string, string | undefined>>;
  clientName: string;
  /** A line for a person who waits. */
  onNotice?: (line: string) => void;
}

export interface EnsuredBroker {
  connection: Connection;
  hello: HelloResult;
  record: BrokerRecord;
  view: DirectoryIdentity;
}

/** How long between two looks at a broker that is not ready. */
const POLL_MS = 20;

/** Starts that may fail because the ground moved (an owner leaving, a lost race) before it is an error. */
const START_TRIES = 10;

/**
 * A young generation of at most 1 MiB: with the default one a broker that sees clients come and go
 * grows by some 40 MB before the collector has any reason to look.
 */
const DAEMON_NODE_OPTIONS = ['--max-semi-space-size=1'];

/** A wait that takes longer than this is told to the person who waits. */
const NOTICE_AFTER_MS = 1_500;

/**
 * @throws BrokerError NOT_FOUND when the directory is not there; PATH_TOO_LONG, UNAVAILABLE when the
 *   runtime dir cannot be used or a start failed; STORE_FAILED when no record can be written;
 *   START_TIMEOUT; UNREACHABLE when nothing answers although it was started again and again.
 */
export async function ensureBroker(request: EnsureRequest): Promise<EnsuredBroker> {
  const root = await canonicalRoot(request.cwd);
  return new Ensuring(request, root, await readView(root)).run();
}

async function readView(root: string): Promise<DirectoryIdentity> {
  try {
    return await readDirectoryIdentity(`${root}/.`);
  } catch (error) {
    throw new BrokerError('NOT_FOUND', `cannot use the working directory ${root}: ${describeError(error)}`, {
      cause: error,
      hint: 'Give a directory that exists and that you may enter.',
    });
  }
}

type Looked = { kind: 'joined'; joined: EnsuredBroker } | Exclude<OwnerAction, { kind: 'join' }>;

class Ensuring {
  readonly #request: EnsureRequest;
  readonly #root: string;
  readonly #view: DirectoryIdentity;
  readonly #layout: StateLayout;
  readonly #key: string;
  readonly #folder: string;
  readonly #env: Readonly<Record<string, string | undefined>>;
  readonly #startedAt = performance.now();
  /** The generation this client has been waiting for, and since when. */
  #waitingFor: { generation: number; sinceAt: number } | undefined;
  #isNoticed = false;

  constructor(request: EnsureRequest, root: string, view: DirectoryIdentity) {
    this.#request = request;
    this.#root = root;
    this.#view = view;
    this.#env = request.env ?? process.env;
    this.#layout = stateLayout(request.config.stateDir);
    this.#key = brokerKey(root);
    this.#folder = this.#layout.folder(this.#key);
  }

  async run(): Promise<EnsuredBroker> {
    const { config } = this.#request;
    const deadlineMs = config.startMs * 2 + config.wedgedMs + config.dialMs + config.helloMs;
    let starts = 0;
    while (performance.now() - this.#startedAt < deadlineMs && starts < START_TRIES) {
      const found = await readHighest(this.#folder);
      const looked = await this.#look(found);
      if (looked.kind === 'joined') return looked.joined;
      if (looked.kind === 'give-up') throw this.#wedgedError(found);
      if (looked.kind === 'wait') await this.#waitFor(found, looked.why);
      else {
        starts += 1;
        await this.#start(found, looked.isTakeover);
      }
    }
    throw new BrokerError('UNREACHABLE', `no broker of ${this.#root} answers`, {
      hint: 'Run `broker doctor`; `broker logs` shows what the broker said.',
    });
  }

  /** Dials the broker on record, if there is one to dial, and judges what was found. */
  async #look(found: FoundRecord | undefined): Promise<Looked> {
    const record = found?.reading.kind === 'record' ? found.reading.record : undefined;
    this.#waitedMs(found?.generation);
    const dialed = record?.phase === 'serving' && (await this.#dial(record));
    if (record && dialed && dialed.kind === 'ok') {
      const { connection, hello } = dialed;
      return { kind: 'joined', joined: { connection, hello, record, view: this.#view } };
    }
    const action = judgeOwner(
      {
        reading: found?.reading,
        broker: record?.broker && verifyIdentity(record.broker),
        starter: record && verifyIdentity(record.starter),
        dialed: dialed ? dialed.kind : undefined,
        waitedMs: this.#waitedMs(found?.generation),
        now: Date.now(),
      },
      { ...this.#request.config, takeoverEveryMs: FIXED.takeoverEveryMs },
    );
    // A join needs an answered hello, which was returned above.
    return action as Exclude<OwnerAction, { kind: 'join' }>;
  }

  #dial(record: BrokerRecord, isControl = false): Promise<DialOutcome> {
    const { config, clientName } = this.#request;
    return dial({ record, config, clientName, isControl, view: this.#view });
  }

  #waitedMs(generation: number | undefined): number {
    if (generation === undefined) return 0;
    if (this.#waitingFor?.generation !== generation) this.#waitingFor = { generation, sinceAt: performance.now() };
    return performance.now() - this.#waitingFor.sinceAt;
  }

  async #waitFor(found: FoundRecord | undefined, why: 'starting' | 'silent'): Promise<void> {
    if (!this.#isNoticed && found && this.#waitedMs(found.generation) > NOTICE_AFTER_MS) {
      this.#isNoticed = true;
      this.#request.onNotice?.(
        why === 'silent'
          ? `the broker of ${this.#root} does not answer; waiting up to ${this.#request.config.wedgedMs} ms before another one is started`
          : `waiting for the broker of ${this.#root} to start`,
      );
    }
    await sleep(POLL_MS + Math.random() * POLL_MS);
    await this.#failIfStartFailed(found);
  }

  /** Whoever waited for a start shares its failure, once; the next caller tries again. */
  async #failIfStartFailed(found: FoundRecord | undefined): Promise<void> {
    if (found?.reading.kind !== 'record' || found.reading.record.phase !== 'starting') return;
    const now = await readGeneration(this.#folder, found.generation);
    if (now?.reading.kind !== 'record' || now.reading.record.instance !== found.reading.record.instance) return;
    const { end } = now.reading.record;
    if (end?.by === 'broker' && end.reason === 'fatal') throw startFailed(this.#root, end.detail ?? 'it did not say why');
  }

  /** Creates the next generation, unless somebody else does, and waits until its broker is ready. */
  async #start(seen: FoundRecord | undefined, isTakeover: boolean): Promise<void> {
    const runtimeDir = await openRuntimeDir(this.#env);
    await makeStateDirs(this.#layout, this.#key);
    const claim = (): Promise<BrokerRecord | undefined> => this.#claim(seen, runtimeDir, isTakeover);
    // Only an owner that serves can hide for a moment and come back; where there is none, the link alone decides.
    const record = canComeBack(seen) ? await withStartLock(runtimeDir, this.#key, FIXED.lockWaitMs, claim) : await claim();
    if (record) await this.#launch(record, runtimeDir);
  }

  /** Short and under the lock: look again, and link the record of the next generation. */
  async #claim(seen: FoundRecord | undefined, runtimeDir: string, isTakeover: boolean): Promise<BrokerRecord | undefined> {
    const found = await readHighest(this.#folder);
    if (!isSameRecord(seen, found)) return undefined;
    const generation = (found?.generation ?? 0) + 1;
    const before = found?.reading.kind === 'record' ? found.reading.record : undefined;
    // An owner that was absent a moment ago may have come back between the first dial and the lock.
    if (!isTakeover && before?.phase === 'serving' && (await this.#isServingAfterAll(before))) return undefined;
    const record = this.#newRecord(generation, runtimeDir, isTakeover ? Date.now() : before?.tookOverAt);
    return (await createRecord(this.#folder, record)) ? record : undefined;
  }

  async #isServingAfterAll(record: BrokerRecord): Promise<boolean> {
    const again = await this.#dial(record, true);
    if (again.kind === 'ok') again.connection.close();
    return again.kind === 'ok';
  }

  #newRecord(generation: number, runtimeDir: string, tookOverAt: number | undefined): BrokerRecord {
    const { randomBytes } = process.getBuiltinModule('node:crypto');
    const instance = randomBytes(16).toString('hex');
    return {
      schema: RECORD_SCHEMA,
      generation,
      instance,
      token: randomBytes(24).toString('base64url'),
      phase: 'starting',
      machineId: readMachineId(),
      uid: process.getuid?.() ?? 0,
      starter: ownIdentity(),
      script: binScript('brokerd.js'),
      version: VERSION,
      protocol: PROTOCOL,
      cwd: { path: this.#root, ...this.#view },
      socket: socketNames(runtimeDir, generation, instance).public,
      startedAt: Date.now(),
      ...(tookOverAt !== undefined && { tookOverAt }),
      children: [],
    };
  }

  /** Starts the daemon of a record and waits until it is ready, or says why it is not. */
  async #launch(record: BrokerRecord, runtimeDir: string): Promise<void> {
    // `superseded` means a higher generation came meanwhile: it is found at the next look.
    const said = await this.#spawn(record, runtimeDir).catch((error: unknown) => `error ${describeError(error)}`);
    if (said === 'ready' || said === 'superseded') return;
    const why = said.replace(/^error /, '');
    await this.#buryStillborn(record, why);
    throw startFailed(this.#root, why);
  }

  async #spawn(record: BrokerRecord, runtimeDir: string): Promise<string> {
    const { config } = this.#request;
    // Loaded here: nearly every client finds a broker that runs.
    const { daemonEnvironment, startDetachedUntilReady } = await import('../process/detach.ts');
    return startDetachedUntilReady(
      {
        nodeOptions: DAEMON_NODE_OPTIONS,
        script: record.script,
        args: ['--cwd', this.#root, '--instance', record.instance, '--generation', String(record.generation)],
        env: {
          ...daemonEnvironment(this.#env),
          CWD_BROKER_STATE_DIR: config.stateDir,
          CWD_BROKER_RUNTIME_DIR: runtimeDir,
        },
        logFile: this.#layout.log(this.#key),
      },
      // The broker owns the deadline and says what went wrong; this one is for a broker that cannot speak.
      config.startMs + FIXED.lockWaitMs,
    );
  }

  /** A daemon that ended before it could write anything leaves our record as we made it: whoever waits for it must hear. */
  async #buryStillborn(record: BrokerRecord, why: string): Promise<void> {
    const found = await readGeneration(this.#folder, record.generation);
    const now = found?.reading.kind === 'record' ? found.reading.record : undefined;
    if (now?.instance !== record.instance || now.phase !== 'starting' || now.broker !== undefined) return;
    const end = { by: 'broker', reason: 'fatal', at: Date.now(), detail: why } as const;
    await updateRecord(this.#folder, { ...record, phase: 'stopped', end });
  }

  #wedgedError(found: FoundRecord | undefined): BrokerError {
    return new BrokerError(
      'UNAVAILABLE',
      `the broker of ${this.#root} (generation ${found?.generation}) is alive and does not answer`,
      {
        hint: 'Another silent one was passed over less than 10 minutes ago. `broker stop --force` ends a wedged broker.',
      },
    );
  }
}

function startFailed(root: string, why: string): BrokerError {
  return new BrokerError('UNAVAILABLE', `the broker of ${root} could not start: ${why}`, {
    hint: 'Run `broker doctor`; `broker logs` shows what the broker said.',
  });
}

function canComeBack(found: FoundRecord | undefined): boolean {
  return found?.reading.kind === 'record' && found.reading.record.phase === 'serving';
}

/** True when both looks saw the same run in the same phase. */
function isSameRecord(a: FoundRecord | undefined, b: FoundRecord | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  if (a.generation !== b.generation || a.reading.kind !== b.reading.kind) return false;
  if (a.reading.kind !== 'record' || b.reading.kind !== 'record') return true;
  return a.reading.record.instance === b.reading.record.instance && a.reading.record.phase === b.reading.record.phase;
}
