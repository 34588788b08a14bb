import { describe, expect, it } from 'vitest';
import { KNOBS, type Knob, type KnobName, loadConfig, resolveStateDir } from '../src/config.ts';
import { BrokerError } from '../src/errors.ts';

const ALL = Object.entries(KNOBS) as Array<[KnobName, Knob]>;
const HOME = { HOME: '/home/me' };

/** What a load fails with. */
function failureOf(load: () => unknown): BrokerError {
  try {
    load();
  } catch (error) {
    if (error instanceof BrokerError) return error;
    throw error;
  }
  throw new Error('it did not fail');
}

describe.each(ALL)('the knob %s', (name, knob) => {
  const range = `${knob.min}…${knob.max} (${knob.unit})`;
  const values = [String(knob.min - 1), String(knob.max + 1), 'NaN', '-1', '1.5', '1e3', '0x10', '10 000', '10s', 'Infinity'];

  it('has a default within its own range, and a meaning', () => {
    expect(loadConfig(HOME)[name]).toBe(knob.default);
    expect(loadConfig({ ...HOME, [knob.variable]: String(knob.default) })[name]).toBe(knob.default);
    expect(knob.meaning).not.toBe('');
    expect(knob.variable).toMatch(/^CWD_BROKER_[A-Z_]+$/);
  });

  it('takes both ends of its range, spaces around them or not', () => {
    expect(loadConfig({ ...HOME, [knob.variable]: String(knob.min) })[name]).toBe(knob.min);
    expect(loadConfig({ ...HOME, [knob.variable]: ` ${knob.max} ` })[name]).toBe(knob.max);
    expect(loadConfig(HOME, { [name]: knob.min })[name]).toBe(knob.min);
    expect(loadConfig(HOME, { [name]: String(knob.max) })[name]).toBe(knob.max);
  });

  it.each([...values, ' '])('refuses %j in its variable, and names variable, value and range', (value) => {
    const failure = failureOf(() => loadConfig({ ...HOME, [knob.variable]: value }));
    expect(failure.code).toBe('USAGE');
    for (const part of [knob.variable, JSON.stringify(value), range]) expect(failure.message).toContain(part);
    expect(failure.hint).toContain(String(knob.default));
  });

  it.each([knob.min - 1, knob.max + 1, 1.5, 1e21, null, true, '', 'NaN', [knob.default], { a: 1 }].map((value) => [value]))(
    'refuses %j in config.json, and names file, value and range',
    (value) => {
      const failure = failureOf(() => loadConfig(HOME, { [name]: value }));
      expect(failure.code).toBe('USAGE');
      for (const part of [`config.json: ${name}`, JSON.stringify(value), range]) expect(failure.message).toContain(part);
    },
  );

  it('is taken from the environment first, then from config.json, then from the default', () => {
    const [fromEnv, fromFile] = [knob.max, knob.max - 1];
    expect(loadConfig({ ...HOME, [knob.variable]: String(fromEnv) }, { [name]: fromFile })[name]).toBe(fromEnv);
    expect(loadConfig(HOME, { [name]: fromFile })[name]).toBe(fromFile);
    expect(loadConfig(HOME, {})[name]).toBe(knob.default);
  });

  it('takes an empty variable for one that is not set', () => {
    expect(loadConfig({ ...HOME, [knob.variable]: '' })[name]).toBe(knob.default);
  });
});

describe('loadConfig', () => {
  it('refuses a file that is no object, and names it does not know', () => {
    for (const file of [null, [], 'text', 7]) expect(failureOf(() => loadConfig(HOME, file)).code).toBe('USAGE');
    const failure = failureOf(() => loadConfig(HOME, { graceMS: 5 }));
    expect(failure.message).toContain('graceMS');
    expect(failure.hint).toContain('graceMs');
    expect(failureOf(() => loadConfig(HOME, JSON.parse('{"__proto__": 1}'))).code).toBe('USAGE');
    expect(failureOf(() => loadConfig(HOME, { toString: 1 })).code).toBe('USAGE');
  });

  it('gives every knob, and cannot be changed afterwards', () => {
    const config = loadConfig(HOME);
    expect(Object.keys(config).sort()).toEqual([...Object.keys(KNOBS), 'stateDir'].sort());
    expect(Object.isFrozen(config)).toBe(true);
  });

  it('names every variable once', () => {
    const variables = ALL.map(([, { variable }]) => variable);
    expect(new Set(variables).size).toBe(variables.length);
  });
});

describe('resolveStateDir', () => {
  it.each([
    [{ CWD_BROKER_STATE_DIR: '/s', XDG_STATE_HOME: '/x', ...HOME }, 'linux', '/s'],
    [{ XDG_STATE_HOME: '/x', ...HOME }, 'linux', '/x/cwd-broker'],
    [{ XDG_STATE_HOME: 'x', ...HOME }, 'linux', '/home/me/.local/state/cwd-broker'],
    [{ CWD_BROKER_STATE_DIR: '', XDG_STATE_HOME: '', ...HOME }, 'linux', '/home/me/.local/state/cwd-broker'],
    [HOME, 'darwin', '/home/me/Library/Application Support/cwd-broker'],
    [{ XDG_STATE_HOME: '/x', ...HOME }, 'darwin', '/x/cwd-broker'],
  ] as const)('says of %j on %s: %s', (env, platform, expected) => {
    expect(resolveStateDir(env, platform)).toBe(expected);
  });

  it('finds a home without HOME', () => {
    expect(resolveStateDir({}, 'linux')).toMatch(/^\/.*\/cwd-broker$/);
    expect(resolveStateDir({ HOME: 'relative' }, 'linux')).toMatch(/^\//);
  });

  it('refuses a path that is not absolute, and names variable and value', () => {
    const failure = failureOf(() => resolveStateDir({ CWD_BROKER_STATE_DIR: 'state' }));
    expect(failure.code).toBe('USAGE');
    expect(failure.message).toContain('CWD_BROKER_STATE_DIR is "state"');
  });
});
