/** One-line JSON logs to a given sink. There is no global logger. */

type Fields = Readonly<Record<string, unknown>>;

export interface Log {
  info(event: string, fields?: Fields): void;
  warn(event: string, fields?: Fields): void;
  error(event: string, fields?: Fields): void;
}

/** A log whose lines go to `write`, each ended by a newline. `write` must not throw. */
export function createLog(write: (line: string) => void, now: () => number = Date.now): Log {
  const put = (level: string, event: string, fields: Fields = {}): void => {
    write(`${JSON.stringify({ at: new Date(now()).toISOString(), level, event, ...fields })}\n`);
  };
  return {
    info: (event, fields) => put('info', event, fields),
    warn: (event, fields) => put('warn', event, fields),
    error: (event, fields) => put('error', event, fields),
  };
}
