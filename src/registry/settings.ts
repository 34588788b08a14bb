/** The settings as this process sees them: environment, then `config.json`, then defaults. */
import { type Config, loadConfig, resolveStateDir } from '../config.ts';
import { readConfigFile } from './paths.ts';

/** @throws BrokerError USAGE for an impossible value, with its name and range. */
export function readConfig(env: Readonly<Record<string, string | undefined>> = process.env): Config {
  return loadConfig(env, readConfigFile(resolveStateDir(env)));
}
