/** The `broker/*` methods: names, params, results, and the protocol's version. */

/** Another number means another protocol; within one number only fields are added. */
export const PROTOCOL = 1;

export const METHODS = {
  hello: 'broker/hello',
  attach: 'broker/attach',
  stderr: 'broker/stderr',
  status: 'broker/status',
  shutdown: 'broker/shutdown',
  unhold: 'broker/unhold',
} as const;

export const NOTIFICATIONS = {
  /** The broker leaves; `retry` says that another one may be had. */
  goaway: 'broker/goaway',
  /** More of an upstream's stderr. */
  stderr: 'broker/stderr/data',
  /** The upstream ended; nothing follows. */
  exit: 'broker/exit',
} as const;

/** Identity of a directory as one side sees it; decimal strings. */
export interface DirectoryView {
  dev: string;
  ino: string;
  birthtimeNs: string;
}

export interface HelloParams {
  protocol: number;
  token: string;
  client: { name: string; version: string; pid: number };
  cwd?: DirectoryView;
  /** It will only ask the broker itself, and so keeps nothing up. */
  control?: boolean;
  /** The marker chain this client inherited, if it descends from a broker's child. */
  marker?: string;
}

export interface HelloResult {
  instance: string;
  generation: number;
  protocol: number;
  version: string;
  cwd: string;
  phase: string;
}

export interface AttachParams {
  command: string;
  args: string[];
  /** The client's whole environment; never logged. */
  env: Record<string, string>;
  /** Shown in `ls`. */
  name?: string;
  profile?: 'raw';
  sharing?: 'isolated';
}

export interface AttachResult {
  attachment: string;
  wire: 'bytes';
}

export interface StderrParams {
  attachment: string;
}

export interface StderrData {
  /** Bytes of stderr, base64. */
  data: string;
}

export interface ExitNotice {
  code?: number;
  signal?: string;
}

export interface GoawayNotice {
  reason: string;
  retry: boolean;
}

export interface UpstreamStatus {
  id: string;
  name?: string;
  command: string[];
  profile: string;
  sharing: string;
  state: string;
  pid?: number;
  clients: number;
  startedAt: string;
}

export interface ClientStatus {
  pid: number;
  name: string;
  upstream?: string;
  since: string;
}

/** Answer of `broker/status`. Times are ISO 8601 in UTC; what is not known is absent. */
export interface StatusResult {
  cwd: string;
  pid: number;
  instance: string;
  generation: number;
  version: string;
  phase: string;
  startedAt: string;
  clients: number;
  clientList: ClientStatus[];
  upstreams: UpstreamStatus[];
  /** Why it is still up. */
  why: string[];
  idleSince?: string;
  exitsAt?: string;
  /** What the last look at the directory said: `same`, or why it may be about to leave. */
  directory: string;
  /** How the directory is watched: `events`, or why only by probing. */
  watch: string;
}

export interface ShutdownParams {
  /** Why, where it is not simply somebody's wish: whoever asks has confirmed it. */
  reason?: 'cwd-gone';
}

export interface ShutdownResult {
  phase: string;
}
