import { describe, expect, it } from 'vitest';
import { KNOBS } from '../../src/config.ts';
import { daemonEnvironment } from '../../src/process/detach.ts';

describe('daemonEnvironment', () => {
  it.each([
    'PATH',
    'HOME',
    'USER',
    'LOGNAME',
    'LANG',
    'LC_ALL',
    'LC_CTYPE',
    'TZ',
    'TMPDIR',
    'XDG_RUNTIME_DIR',
    'XDG_STATE_HOME',
    'CWD_BROKER_STATE_DIR',
    'CWD_BROKER_RUNTIME_DIR',
    ...Object.values(KNOBS).map(({ variable }) => variable),
  ])('keeps %s', (name) => {
    expect(daemonEnvironment({ [name]: 'value' })).toEqual({ [name]: 'value' });
  });

  it.each([
    'ANTHROPIC_API_KEY',
    'OPENAI_API_KEY',
    'GITHUB_TOKEN',
    'AWS_SECRET_ACCESS_KEY',
    'SSH_AUTH_SOCK',
    'NODE_OPTIONS',
    'NODE_PATH',
    'NODE_EXTRA_CA_CERTS',
    'NODE_V8_COVERAGE',
    'NODE_CHANNEL_FD',
    'LD_PRELOAD',
    'DYLD_INSERT_LIBRARIES',
    'PIDUSAGE_MAXAGE',
    'PIDUSAGE_SILENT',
    'CHOKIDAR_USEPOLLING',
    'CHOKIDAR_INTERVAL',
    'CWD_BROKER_INSTANCE',
    'CLAUDE_PID',
    'CLAUDE_SESSION_ID',
    'TERM',
    'PWD',
    'SHLVL',
    'MY_PATH',
    'PATH_X',
    'path',
    'XCWD_BROKER_GRACE_MS',
    'LC_all',
    '',
  ])('leaves %j behind', (name) => {
    expect(daemonEnvironment({ [name]: 'secret' })).toEqual({});
  });

  it('keeps values as they are, empty ones too, and leaves out what is not set', () => {
    expect(daemonEnvironment({ PATH: '', HOME: undefined, LANG: 'a=b\nc' })).toEqual({ PATH: '', LANG: 'a=b\nc' });
  });
});
