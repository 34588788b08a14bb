import { describe, expect, it } from 'vitest';
import { CONNECT_OPTIONS, parseConnect } from '../../src/cli/connect-arguments.ts';

describe('parseConnect', () => {
  it.each([
    [['--', 'node', 'server.js'], { fallback: true, command: 'node', args: ['server.js'] }],
    [['node', 'server.js'], { fallback: true, command: 'node', args: ['server.js'] }],
    [['node'], { fallback: true, command: 'node', args: [] }],
    [['--cwd', '/w', '--', 'node'], { cwd: '/w', fallback: true, command: 'node', args: [] }],
    [['--cwd=/w', '--', 'node'], { cwd: '/w', fallback: true, command: 'node', args: [] }],
    [['--cwd=/a=b', 'node'], { cwd: '/a=b', fallback: true, command: 'node', args: [] }],
    [['--cwd=', 'node'], { cwd: '', fallback: true, command: 'node', args: [] }],
    [['--cwd', '/a', '--cwd', '/b', 'node'], { cwd: '/b', fallback: true, command: 'node', args: [] }],
    [
      ['--name', 'docs', '--isolated', '--no-fallback', '--', 'node'],
      { name: 'docs', fallback: false, command: 'node', args: [] },
    ],
    [['node', '--name', 'x', '--no-fallback'], { fallback: true, command: 'node', args: ['--name', 'x', '--no-fallback'] }],
    [['--', '--odd', '--cwd', '/w'], { fallback: true, command: '--odd', args: ['--cwd', '/w'] }],
    [['--', 'sh', '-c', 'a -- b', '--', 'c'], { fallback: true, command: 'sh', args: ['-c', 'a -- b', '--', 'c'] }],
    [['--', 'node', ''], { fallback: true, command: 'node', args: [''] }],
  ])('reads %j', (argv, expected) => {
    expect(parseConnect(argv)).toEqual(expected);
  });

  it.each([
    [[]],
    [['--']],
    [['--', '']],
    [['--cwd']],
    [['--cwd', '/w']],
    [['--name', 'docs', '--']],
    [['--no-fallback']],
    [['--help']],
    [['-h', 'node']],
    [['-', 'node']],
    [['--unknown', '--', 'node']],
    [['--isolated=yes', 'node']],
    [['--no-fallback=1', 'node']],
    [['--CWD', '/w', 'node']],
    [['--cw', '/w', 'node']],
    [['--shared', '--', 'node']],
  ])('leaves %j to the command tree', (argv) => {
    expect(parseConnect(argv)).toBeUndefined();
  });

  it('knows every declared option', () => {
    for (const { name, value } of CONNECT_OPTIONS) {
      expect(parseConnect([`--${name}`, ...(value === undefined ? [] : ['x']), '--', 'node'])).toMatchObject({ command: 'node' });
    }
  });
});
