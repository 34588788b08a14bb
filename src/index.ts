/** The public library: connect to the broker of a directory, open upstreams, ask what it does. */
export {
  type BrokerClient,
  type ConnectOptions,
  connectBroker,
  type OpenOptions,
  type OpenUpstream,
  type UpstreamEnd,
} from './client/client.ts';
export { BrokerError, type Committed, type ErrorCode, type Fault } from './errors.ts';
export type { ExitReason } from './registry/record.ts';
export type { ClientStatus, ExitNotice, GoawayNotice, StatusResult, UpstreamStatus } from './rpc/control.ts';
