/**
 * The arguments of `broker connect`, declared once and read twice: here without any library, on the
 * way every client takes, and by the command tree, which has the help and the error texts.
 */
export interface ConnectRequest {
  cwd?: string;
  /** Shown in `broker ls`. */
  name?: string;
  fallback: boolean;
  command: string;
  args: string[];
}

/** Options of `connect`; those with `value` take one. */
export const CONNECT_OPTIONS = [
  { name: 'cwd', value: 'DIR', help: 'the directory whose broker is meant (default: the current one)' },
  { name: 'name', value: 'NAME', help: 'a name for `broker ls`' },
  { name: 'isolated', value: undefined, help: 'a helper of your own; it ends with you (the default)' },
  { name: 'no-fallback', value: undefined, help: 'fail when no broker can be had, instead of running the command without one' },
] as const;

/** Reads the arguments behind `connect`; undefined for anything but a plain right call. Pure. */
export function parseConnect(argv: readonly string[]): ConnectRequest | undefined {
  const values = new Map<string, string>();
  let at = 0;
  for (; at < argv.length; at += 1) {
    const word = argv[at] as string;
    if (word === '--') {
      at += 1;
      break;
    }
    if (!word.startsWith('-')) break;
    const [name, inline] = splitOption(word);
    const option = CONNECT_OPTIONS.find((one) => `--${one.name}` === name);
    if (option === undefined || (option.value === undefined && inline !== undefined)) return undefined;
    const value = option.value === undefined ? '' : (inline ?? argv[++at]);
    if (value === undefined) return undefined;
    values.set(option.name, value);
  }
  const [command, ...args] = argv.slice(at);
  if (command === undefined || command === '') return undefined;
  const cwd = values.get('cwd');
  const name = values.get('name');
  return {
    ...(cwd !== undefined && { cwd }),
    ...(name !== undefined && { name }),
    fallback: !values.has('no-fallback'),
    command,
    args,
  };
}

function splitOption(word: string): [string, string | undefined] {
  const at = word.indexOf('=');
  return at < 0 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
}
