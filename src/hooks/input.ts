/** Reads the JSON that Claude Code writes to a hook's stdin: tolerant, capped, and never waiting for an end that may not come. */

export interface HookInput {
  sessionId?: string;
  /** May name a directory that is gone. */
  cwd?: string;
}

/** The longest input that is read, and how long it is waited for. */
const MAX_BYTES = 1024 * 1024;
const WAIT_MS = 150;

/** Reads until the JSON is whole, the stream ends, or time is up. Never rejects; what is not there is absent. */
export function readHookInput(stdin: NodeJS.ReadStream, waitMs = WAIT_MS): Promise<HookInput> {
  return new Promise((resolve) => {
    let text = '';
    const finish = (): void => {
      clearTimeout(timer);
      stdin.removeAllListeners();
      // A parent that keeps its end open must not keep the hook.
      stdin.on('error', () => undefined).destroy();
      resolve(parseHookInput(text) ?? {});
    };
    const timer = setTimeout(finish, waitMs);
    if (stdin.isTTY) {
      finish();
      return;
    }
    stdin.setEncoding('utf8');
    stdin.on('data', (chunk: string) => {
      text += chunk;
      if (text.length > MAX_BYTES || (text.trimEnd().endsWith('}') && parseHookInput(text) !== undefined)) finish();
    });
    stdin.once('end', finish);
    stdin.once('error', finish);
  });
}

/** Undefined when the text is not a JSON object. Unknown fields are left alone. Pure. */
export function parseHookInput(text: string): HookInput | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const { session_id: sessionId, cwd } = value as Record<string, unknown>;
  return {
    ...(typeof sessionId === 'string' && { sessionId }),
    ...(typeof cwd === 'string' && cwd.startsWith('/') && { cwd }),
  };
}
