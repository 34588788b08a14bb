/**
 * Binds the socket, accepts, hides and stops accepting.
 *
 * Node unlinks a server's bind path when it closes, whoever owns that path by then. So the socket is
 * bound under a private name and renamed to its public one: closing finds nothing to unlink, and the
 * public name, which holds this run's instance id, is removed by us alone.
 */
import { lstat, rename, utimes } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { hasErrno } from '../errors.ts';
import type { SocketNames } from '../registry/paths.ts';
import { removeSocket } from '../registry/records.ts';

/** The default of 511 turned half of 1,000 simultaneous clients away. */
const BACKLOG = 4096;

export class Listener {
  readonly #names: SocketNames;
  readonly #onConnection: (socket: Socket) => void;
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;
  #isHidden = false;

  constructor(names: SocketNames, onConnection: (socket: Socket) => void) {
    this.#names = names;
    this.#onConnection = onConnection;
  }

  /** Starts accepting, under the public name. @throws the system's error. */
  async publish(): Promise<void> {
    const before = this.#server;
    // Half-open is allowed so that what a leaving client's helper still says can reach it; who half-closes counts as gone.
    const server = createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket));
    await listen(server, this.#names.bind);
    await rename(this.#names.bind, this.#names.public);
    this.#server = server;
    before?.close();
  }

  /** True while clients can find the socket. */
  async isPublished(): Promise<boolean> {
    if (this.#isHidden) return true;
    try {
      return (await lstat(this.#names.public)).isSocket();
    } catch (error) {
      if (hasErrno(error, 'ENOENT', 'ENOTDIR')) return false;
      throw error;
    }
  }

  async touch(): Promise<void> {
    const now = new Date();
    await utimes(this.#names.public, now, now);
  }

  /** Takes the socket out of sight and lets everyone in who had found it. */
  async hide(): Promise<void> {
    await renameIfThere(this.#names.public, this.#names.hidden);
    this.#isHidden = true;
    await sleep(2);
    await turn();
    await turn();
  }

  async unhide(): Promise<void> {
    await renameIfThere(this.#names.hidden, this.#names.public);
    this.#isHidden = false;
  }

  /** Accepts nobody any more and removes every name of this run. Open connections stay. Idempotent. */
  async stop(): Promise<void> {
    this.#server?.close();
    this.#server = undefined;
    for (const name of [this.#names.public, this.#names.hidden, this.#names.bind]) await removeSocket(name);
  }

  /** Cuts what is still connected. */
  destroyAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    this.#onConnection(socket);
  }
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const mask = process.umask(0o077);
    server.once('error', reject);
    server.listen({ path, backlog: BACKLOG }, () => {
      server.off('error', reject);
      server.on('error', () => undefined);
      resolve();
    });
    process.umask(mask);
  });
}

async function renameIfThere(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (!hasErrno(error, 'ENOENT', 'ENOTDIR')) throw error;
  }
}
