/** The questions a broker answers itself, on a connection that has said hello. */
import type { Connection } from '../rpc/connection.ts';
import { METHODS, type ShutdownParams, type StatusResult } from '../rpc/control.ts';

export type { ClientStatus, StatusResult } from '../rpc/control.ts';

/** Questions the broker answers itself are answered within this, ms. */
export const CONTROL_MS = 5_000;

/** @throws BrokerError REQUEST_TIMEOUT, CONNECTION_CLOSED. */
export async function askStatus(connection: Connection, timeoutMs = CONTROL_MS): Promise<StatusResult> {
  return (await connection.request(METHODS.status, {}, timeoutMs)) as StatusResult;
}

/** Resolves when the broker has agreed to leave, not when it is gone. @throws BrokerError REQUEST_TIMEOUT, CONNECTION_CLOSED. */
export async function askShutdown(connection: Connection, params: ShutdownParams = {}): Promise<void> {
  await connection.request(METHODS.shutdown, params, CONTROL_MS);
}

/** Tells the broker that a host session gave its hold back. @throws BrokerError REQUEST_TIMEOUT, CONNECTION_CLOSED. */
export async function tellUnhold(connection: Connection, timeoutMs = CONTROL_MS): Promise<void> {
  await connection.request(METHODS.unhold, {}, timeoutMs);
}
