/** File events for commands that show something again when it changes. A hint only: what is shown is always read anew. */

export interface Watching {
  close(): Promise<void>;
}

/** Calls `onChange` at every event at or below `path`, which may not exist yet, and once when it is ready. */
export async function watchPath(path: string, depth: number, onChange: () => void): Promise<Watching> {
  // The environment must not turn the watcher into a poller, at a hundred times the cost.
  for (const name of ['CHOKIDAR_USEPOLLING', 'CHOKIDAR_INTERVAL']) delete process.env[name];
  const { watch } = await import('chokidar');
  const watcher = watch(path, { ignoreInitial: true, depth });
  watcher.on('all', onChange);
  watcher.on('ready', onChange);
  // Without a listener a limit of the system would end the process.
  watcher.on('error', (error) => process.stderr.write(`broker: not watching ${path}: ${String(error)}\n`));
  return watcher;
}
