/** `broker doctor`: looks at folders, limits and records, and says what to do. Changes nothing. */
import { accessSync, constants, lstatSync, readFileSync } from 'node:fs';
import { type Config, FIXED } from '../config.ts';
import { BrokerError, describeError, hasErrno } from '../errors.ts';
import { VERSION } from '../installation.ts';
import { fitsSocketPath, judgeRuntimeDir, runtimeDirCandidates } from '../registry/paths.ts';
import { readConfig } from '../registry/settings.ts';
import { type Swept, sweep } from '../supervisor/sweep.ts';
import { print } from './context.ts';
import { renderJson } from './render.ts';

interface Finding {
  check: string;
  level: 'ok' | 'warning' | 'problem';
  message: string;
  hint?: string;
}

/** @returns 1 when there is a problem; warnings alone are 0. */
export async function doctor(options: { json?: boolean }): Promise<number> {
  const findings = await examine();
  if (options.json) await print(renderJson(findings));
  else await print(findings.map(renderFinding).join(''));
  return findings.some(({ level }) => level === 'problem') ? 1 : 0;
}

async function examine(): Promise<Finding[]> {
  const findings: Finding[] = [
    { check: 'version', level: 'ok', message: `cwd-broker ${VERSION} on Node ${process.versions.node}, ${process.platform}` },
  ];
  let config: Config;
  try {
    config = readConfig();
  } catch (error) {
    if (!(error instanceof BrokerError)) throw error;
    return [
      ...findings,
      { check: 'settings', level: 'problem', message: error.message, ...(error.hint && { hint: error.hint }) },
    ];
  }
  findings.push({ check: 'settings', level: 'ok', message: 'every setting is in its range' });
  findings.push(examineStateDir(config.stateDir), examineRuntimeDir(), ...examineInotify());
  findings.push(...examineRecords(await sweep({ config })));
  return findings;
}

function examineStateDir(dir: string): Finding {
  try {
    const stats = lstatSync(dir);
    if (!stats.isDirectory())
      return { check: 'state dir', level: 'problem', message: `${dir} is not a directory`, hint: 'Move it away.' };
    accessSync(dir, constants.W_OK | constants.X_OK);
    if ((stats.mode & 0o077) === 0) return { check: 'state dir', level: 'ok', message: dir };
    return { check: 'state dir', level: 'warning', message: `${dir} can be entered by others`, hint: `Run: chmod 700 ${dir}` };
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return { check: 'state dir', level: 'ok', message: `${dir} (made at the first use)` };
    return {
      check: 'state dir',
      level: 'problem',
      message: describeError(error),
      hint: 'Make it writable, or set CWD_BROKER_STATE_DIR.',
    };
  }
}

function examineRuntimeDir(): Finding {
  const check = 'runtime dir';
  const uid = process.getuid?.() ?? 0;
  const candidates = runtimeDirCandidates(process.env, uid);
  const dir = candidates.find(fitsSocketPath);
  if (dir === undefined) {
    return {
      check,
      level: 'problem',
      message: `too long for a socket: ${candidates.join(', ')}`,
      hint: 'Set CWD_BROKER_RUNTIME_DIR to a short path.',
    };
  }
  try {
    const refusal = judgeRuntimeDir(lstatSync(dir), uid);
    if (refusal === undefined) return { check, level: 'ok', message: `${dir}; keep it out of reach of sandboxed commands` };
    return {
      check,
      level: 'problem',
      message: `${dir} is refused: ${refusal}`,
      hint: 'Remove it, or set CWD_BROKER_RUNTIME_DIR.',
    };
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return { check, level: 'ok', message: `${dir} (made at the first use)` };
    return { check, level: 'problem', message: describeError(error), hint: 'Set CWD_BROKER_RUNTIME_DIR.' };
  }
}

/** Each broker holds one inotify instance; without one it notices a deleted directory later. */
function examineInotify(): Finding[] {
  try {
    const limit = Number(readFileSync('/proc/sys/fs/inotify/max_user_instances', 'latin1'));
    const level = limit < 64 ? 'warning' : 'ok';
    return [
      {
        check: 'file events',
        level,
        message: `${limit} watching processes for each user`,
        ...(level === 'warning' && {
          hint: `Beyond that, brokers probe every ${FIXED.probeIdleMs / 1000} s. Raise fs.inotify.max_user_instances.`,
        }),
      },
    ];
  } catch (error) {
    if (hasErrno(error, 'ENOENT', 'EACCES')) return [];
    throw error;
  }
}

const HINTS: Partial<Record<Swept['verdict'], string>> = {
  stale: 'Run: broker reap',
  orphan: 'Run: broker reap',
  'cwd-gone': 'Run: broker reap',
  wedged: 'Run: broker stop --force in that directory',
};

function examineRecords(swept: readonly Swept[]): Finding[] {
  const live = swept.filter(({ verdict }) => verdict === 'live').length;
  const odd = swept.filter(({ verdict }) => !['live', 'stopped', 'starting', 'draining', 'foreign'].includes(verdict));
  return [
    { check: 'records', level: 'ok', message: `${swept.length} read, ${live} live` },
    ...odd.map((one): Finding => {
      const hint =
        HINTS[one.verdict] ??
        (one.record === undefined ? `It is skipped. Remove ${one.file} when no broker of that folder runs.` : undefined);
      return {
        check: 'records',
        level: 'warning',
        message: `${one.record?.cwd.path ?? one.file}: ${one.verdict}, ${one.why}`,
        ...(hint && { hint }),
      };
    }),
  ];
}

function renderFinding({ check, level, message, hint }: Finding): string {
  return `${level.padEnd(7)}  ${check}: ${message}\n${hint ? `         ${hint}\n` : ''}`;
}
