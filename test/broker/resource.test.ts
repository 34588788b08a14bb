import { describe, expect, it } from 'vitest';
import { Resource, type ResourceBody } from '../../src/broker/resource.ts';

type Reason = 'shutdown' | 'crash';
type Body = ResourceBody<Reason>;

/** A promise and its ends. */
function createGate(): { promise: Promise<void>; open(): void; fail(error: unknown): void } {
  let open: () => void = () => undefined;
  let fail: (error: unknown) => void = () => undefined;
  const promise = new Promise<void>((resolve, reject) => {
    open = resolve;
    fail = reject;
  });
  return { promise, open, fail };
}

function createResource(changes: Partial<Body> = {}): { resource: Resource<Reason>; steps: string[] } {
  const steps: string[] = [];
  const resource = new Resource<Reason>(
    'upstream 1',
    {
      start: async (incarnation) => void steps.push(`start ${incarnation}`),
      stop: (reason, incarnation) => [() => void steps.push(`stop ${incarnation} ${reason}`)],
      ...changes,
    },
    () => 42,
  );
  return { resource, steps };
}

const NOT_READY = expect.objectContaining({ code: 'NOT_READY' });

describe('a start', () => {
  it('is shared by all who ask meanwhile', async () => {
    const gate = createGate();
    let starts = 0;
    const { resource } = createResource({
      start: () => {
        starts += 1;
        return gate.promise;
      },
    });
    const all = [resource.start(), resource.start(), resource.start()];
    expect(resource.state).toBe('starting');
    gate.open();
    await Promise.all(all);
    await resource.start();
    expect({ starts, state: resource.state, incarnation: resource.incarnation }).toEqual({
      starts: 1,
      state: 'ready',
      incarnation: 1,
    });
  });

  it('fails once for all who ask meanwhile, and is tried anew afterwards', async () => {
    const failure = new Error('no');
    const failures: unknown[] = [failure];
    const { resource, steps } = createResource({
      start: async () => {
        const error = failures.pop();
        if (error) throw error;
      },
    });
    const outcomes = await Promise.allSettled([resource.start(), resource.start()]);
    expect(outcomes).toEqual([
      { status: 'rejected', reason: failure },
      { status: 'rejected', reason: failure },
    ]);
    expect(resource.state).toBe('failed');
    expect(steps).toEqual(['stop 1 failed']);
    await resource.start();
    expect({ state: resource.state, incarnation: resource.incarnation }).toEqual({ state: 'ready', incarnation: 2 });
  });

  it('keeps its own error when a step of its tail fails too', async () => {
    const { resource } = createResource({
      start: async () => Promise.reject(new Error('start')),
      stop: () => [
        () => {
          throw new Error('tail');
        },
      ],
    });
    await expect(resource.start()).rejects.toThrow('start');
  });

  it('that throws at once rejects like any other', async () => {
    const { resource } = createResource({
      start: () => {
        throw new Error('at once');
      },
    });
    await expect(resource.start()).rejects.toThrow('at once');
    expect(resource.state).toBe('failed');
  });

  it('is refused while it is being stopped, and is another incarnation afterwards', async () => {
    const gate = createGate();
    const { resource } = createResource({ stop: () => [() => gate.promise] });
    await resource.start();
    const stopping = resource.stop('shutdown');
    await expect(resource.start()).rejects.toThrow(NOT_READY);
    gate.open();
    await stopping;
    await resource.start();
    expect(resource.incarnation).toBe(2);
    expect(resource.stopReason).toBeUndefined();
  });
});

describe('a stop', () => {
  it('does nothing to what was never started, or is stopped', async () => {
    const { resource, steps } = createResource();
    expect(await resource.stop('shutdown')).toEqual([]);
    expect(resource.state).toBe('absent');
    await resource.start();
    await resource.stop('crash');
    await resource.stop('shutdown');
    expect(steps).toEqual(['start 1', 'stop 1 crash']);
    expect(resource.stopReason).toBe('crash');
  });

  it('is shared by all who ask, and the first reason stands', async () => {
    const gate = createGate();
    const { resource } = createResource({ stop: () => [() => gate.promise] });
    await resource.start();
    const all = [resource.stop('crash'), resource.stop('shutdown')];
    expect(all[0]).toBe(all[1]);
    gate.open();
    await Promise.all(all);
    expect({ state: resource.state, reason: resource.stopReason }).toEqual({ state: 'stopped', reason: 'crash' });
  });

  it('runs every step, in order, although one throws and one rejects', async () => {
    const ran: number[] = [];
    const { resource } = createResource({
      stop: () => [
        () => {
          ran.push(1);
          throw new Error('first');
        },
        async () => {
          ran.push(2);
          throw new Error('second');
        },
        () => void ran.push(3),
      ],
    });
    await resource.start();
    expect(await resource.stop('shutdown')).toEqual([new Error('first'), new Error('second')]);
    expect(ran).toEqual([1, 2, 3]);
    expect(resource.state).toBe('stopped');
  });

  it('never rejects, also when the body cannot list its steps', async () => {
    const { resource } = createResource({
      stop: () => {
        throw new Error('no steps');
      },
    });
    await resource.start();
    await expect(resource.stop('shutdown')).resolves.toEqual([new Error('no steps')]);
    expect(resource.state).toBe('stopped');
  });

  it('in the middle of a start aborts it, waits for it, and runs the tail once', async () => {
    const gate = createGate();
    const order: string[] = [];
    const { resource } = createResource({
      start: async (_, signal) => {
        signal.addEventListener('abort', () => order.push('aborted'));
        await gate.promise;
        order.push('start settled');
      },
      stop: (reason) => [() => void order.push(`tail ${reason}`)],
    });
    const starting = resource.start();
    const stopping = resource.stop('shutdown');
    expect(resource.state).toBe('stopping');
    gate.open();
    await expect(starting).rejects.toThrow(NOT_READY);
    expect(await stopping).toEqual([]);
    expect(order).toEqual(['aborted', 'start settled', 'tail shutdown']);
    expect(resource.state).toBe('stopped');
  });

  it('in the middle of a start reports what the start failed with', async () => {
    const gate = createGate();
    const { resource } = createResource({ start: () => gate.promise });
    const starting = resource.start();
    const stopping = resource.stop('shutdown');
    gate.fail(new Error('broken'));
    await expect(starting).rejects.toThrow('broken');
    expect(await stopping).toEqual([new Error('broken')]);
  });

  it('waits for the tail of a start that has just failed', async () => {
    const gate = createGate();
    const { resource } = createResource({
      start: () => Promise.reject(new Error('broken')),
      stop: () => [() => gate.promise],
    });
    const starting = resource.start();
    const failing = expect(starting).rejects.toThrow('broken');
    await new Promise(setImmediate);
    let isStopped = false;
    const stopping = resource.stop('shutdown').then(() => {
      isStopped = true;
    });
    await new Promise(setImmediate);
    expect(isStopped).toBe(false);
    gate.open();
    await Promise.all([stopping, failing]);
  });
});

describe('a lease', () => {
  it('is had only while it is ready', async () => {
    const { resource } = createResource();
    expect(resource.tryLease('request')).toBeUndefined();
    expect(() => resource.lease('request')).toThrow(NOT_READY);
    await resource.start();
    expect(resource.tryLease('request')).toBeDefined();
    expect(resource.leases).toEqual([{ reason: 'request', sinceAt: 42 }]);
  });

  it('is refused from the very call that begins the stop', async () => {
    const { resource } = createResource();
    await resource.start();
    const stopping = resource.stop('shutdown');
    expect(resource.tryLease('late')).toBeUndefined();
    await stopping;
    expect(resource.tryLease('later')).toBeUndefined();
  });

  it('is released once, however often it is asked', async () => {
    const { resource } = createResource();
    await resource.start();
    const lease = resource.lease('first');
    resource.lease('second');
    lease.release();
    lease.release();
    expect(resource.leases.map(({ reason }) => reason)).toEqual(['second']);
  });

  it('ends with the body that runs under it, also when that throws', async () => {
    const { resource } = createResource();
    await resource.start();
    expect(await resource.withLease('request', () => resource.leases.length)).toBe(1);
    await expect(
      resource.withLease('request', () => {
        throw new Error('body');
      }),
    ).rejects.toThrow('body');
    expect(resource.leases).toEqual([]);
  });

  it('that cannot be had rejects and never throws', async () => {
    const { resource } = createResource();
    let promise: Promise<unknown> | undefined;
    expect(() => {
      promise = resource.withLease('request', () => 1);
    }).not.toThrow();
    await expect(promise).rejects.toThrow(NOT_READY);
  });
});

describe('an incarnation', () => {
  it('is current until it is stopped, and never again', async () => {
    const { resource } = createResource();
    await resource.start();
    expect(resource.isCurrent(1)).toBe(true);
    await resource.stop('crash');
    expect(resource.isCurrent(1)).toBe(false);
    await resource.start();
    expect([1, 2, 3].map((one) => resource.isCurrent(one))).toEqual([false, true, false]);
  });

  it('is not current after a start that failed', async () => {
    const { resource } = createResource({ start: () => Promise.reject(new Error('no')) });
    await expect(resource.start()).rejects.toThrow('no');
    expect(resource.isCurrent(1)).toBe(false);
  });
});
