import { describe, expect, it } from 'vitest';
import { renderBytes, renderDuration, renderError, renderJson, renderTable } from '../../src/cli/render.ts';
import { BrokerError } from '../../src/errors.ts';

describe('renderTable', () => {
  it('aligns columns and does not pad the last one', () => {
    expect(
      renderTable(
        ['PID', 'NAME', 'WHY'],
        [
          ['1', 'docs', 'x'],
          ['12345', '', ''],
        ],
      ),
    ).toBe('PID    NAME  WHY\n1      docs  x\n12345\n');
  });

  it('is its header where there are no rows', () => {
    expect(renderTable(['A', 'B'], [])).toBe('A  B\n');
  });
});

describe('renderDuration', () => {
  it.each([
    [-5, '0s'],
    [0, '0s'],
    [499, '0s'],
    [500, '1s'],
    [119_400, '119s'],
    [120_000, '2m'],
    [7_199_000, '120m'],
    [7_200_000, '2h'],
    [172_799_000, '48h'],
    [172_800_000, '2d'],
    [30 * 86_400_000, '30d'],
  ])('says of %i ms: %s', (ms, expected) => {
    expect(renderDuration(ms)).toBe(expected);
  });
});

describe('renderBytes', () => {
  it.each([
    [undefined, '–'],
    [0, '0.0 MB'],
    [1_250_000, '1.3 MB'],
    [13e9, '13000.0 MB'],
  ])('says of %s bytes: %s', (bytes, expected) => {
    expect(renderBytes(bytes)).toBe(expected);
  });
});

describe('renderJson', () => {
  it('ends with a newline and leaves out what is not known', () => {
    expect(renderJson([{ pid: 1, name: undefined }])).toBe('[\n  {\n    "pid": 1\n  }\n]\n');
  });
});

describe('renderError', () => {
  const known = new BrokerError('STORE_FAILED', 'cannot write /state', {
    cause: new Error('ENOSPC: full'),
    hint: 'Free some space.',
  });

  it('says what failed, its code, why, and what to do', () => {
    expect(renderError(known, false)).toBe(
      'broker: cannot write /state [STORE_FAILED]\n  cause: ENOSPC: full\n  hint:  Free some space.\n',
    );
  });

  it('does not repeat a cause that the message names', () => {
    const error = new BrokerError('USAGE', 'bad: ENOSPC: full', { cause: new Error('ENOSPC: full') });
    expect(renderError(error, false)).toBe('broker: bad: ENOSPC: full [USAGE]\n');
  });

  it('shows where a bug came from', () => {
    expect(renderError(new TypeError('oops'), false)).toMatch(/^broker: oops\nTypeError: oops\n\s+at /);
  });

  it('shows what is thrown although it is no error', () => {
    expect(renderError('odd', false)).toBe('broker: odd\n');
  });

  it('is one line of JSON for scripts', () => {
    expect(JSON.parse(renderError(known, true))).toEqual({
      error: {
        code: 'STORE_FAILED',
        message: 'cannot write /state',
        fault: 'server',
        retryable: true,
        cause: 'ENOSPC: full',
        hint: 'Free some space.',
      },
    });
    expect(JSON.parse(renderError(new Error('oops'), true))).toEqual({
      error: { code: 'BUG', message: 'oops', fault: 'server', retryable: false },
    });
  });
});
