/** This installation: its version, and where its scripts are. They are started by path, never imported. */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** A test holds it equal to package.json. */
export const VERSION = '0.1.0';

/**
 * Path of a script in `bin/`, looked for upwards from this module, which may be a source, a bundle
 * or a built file. The file itself may be gone by the time it is used.
 */
export function binScript(name: 'broker.js' | 'brokerd.js'): string {
  for (let dir = dirname(fileURLToPath(import.meta.url)); ; dir = dirname(dir)) {
    const script = join(dir, 'bin', name);
    if (existsSync(script)) return script;
    if (dir === dirname(dir)) throw new Error(`bin/${name} is not part of this installation`);
  }
}
