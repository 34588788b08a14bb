import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { connectBroker } from '../../src/client/client.ts';
import { BrokerError } from '../../src/errors.ts';
import { createRandom } from '../support/random.ts';
import { createSandbox, type Sandbox } from '../support/sandbox.ts';

const ROUNDS = 300;
const LANES = 2;
const GRACE_MS = 40;

/** One request through a helper that writes down what it was asked. Tried again only while nothing was accepted. */
async function askOnce(box: Sandbox, root: string, id: string): Promise<{ answer: string; retries: number }> {
  for (let retries = 0; ; retries += 1) {
    try {
      const client = await connectBroker({ cwd: root, env: box.env, clientName: id });
      const upstream = await client.upstreams.open({
        command: 'sh',
        args: ['-c', 'read -r line && echo "$line" >> asked && echo "got $line"'],
        env: box.env,
      });
      client.close();
      upstream.stream.write(`${id}\n`);
      let answer = '';
      for await (const chunk of upstream.stream) answer += chunk;
      await upstream.ended;
      return { answer, retries };
    } catch (error) {
      const isTold = error instanceof BrokerError && (error.code === 'CLOSING' || error.code === 'CONNECTION_CLOSED');
      if (!isTold || retries > 20) throw error;
    }
  }
}

describe('a client that comes in the moment of the exit', () => {
  it(`is answered, once: ${ROUNDS} rounds with random stalls`, async () => {
    const box = await createSandbox({ CWD_BROKER_GRACE_MS: String(GRACE_MS) });
    const random = createRandom(20_261);
    const asked: string[] = [];
    let generations = 0;
    for (let round = 0; round < ROUNDS / LANES; round += 1) {
      const ids = Array.from({ length: LANES }, (_, lane) => `r${round}-${lane}`);
      const stall = random.chance(30) ? stallBroker(box, random.below(30), random.below(60)) : Promise.resolve();
      const answers = await Promise.all(ids.map((id) => askOnce(box, box.work, id)));
      expect(answers.map(({ answer }) => answer)).toEqual(ids.map((id) => `got ${id}\n`));
      asked.push(...ids);
      await stall;
      // Around the end of the grace, where broker and client meet.
      await sleep(GRACE_MS * (0.6 + random.below(80) / 100));
    }
    generations = (await box.record())?.generation ?? 0;
    const written = (await readFile(join(box.work, 'asked'), 'utf8')).trim().split('\n');
    expect(written.sort()).toEqual(asked.sort());
    // The rounds are worth nothing unless brokers really ended between them.
    expect(generations).toBeGreaterThan(ROUNDS / LANES / 10);
  });
});

/** Stops the broker for a while, so that its timers are late and its backlog fills. */
async function stallBroker(box: Sandbox, afterMs: number, forMs: number): Promise<void> {
  await sleep(afterMs);
  const record = await box.record();
  const pid = record?.broker?.pid;
  if (pid === undefined || !box.processes().some((one) => one.pid === pid && one.startTime === record?.broker?.startTime)) return;
  process.kill(pid, 'SIGSTOP');
  await sleep(forMs);
  process.kill(pid, 'SIGCONT');
}
