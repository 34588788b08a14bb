import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { describe, expect, it } from 'vitest';
import { binScript, VERSION } from '../src/installation.ts';

interface Manifest {
  version: string;
  engines: Record<string, string>;
  bin: Record<string, string>;
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
}

interface Lock {
  version: string;
  packages: Record<string, { version?: string } & Partial<Manifest>>;
}

const read = (name: string): string => readFileSync(new URL(`../${name}`, import.meta.url), 'utf8');
const manifest = JSON.parse(read('package.json')) as Manifest;
const lock = JSON.parse(read('package-lock.json')) as Lock;

describe('the package', () => {
  it('has one version', () => {
    expect(VERSION).toBe(manifest.version);
    expect([lock.version, lock.packages['']?.version]).toEqual([manifest.version, manifest.version]);
  });

  it.each([...Object.entries(manifest.dependencies), ...Object.entries(manifest.devDependencies)])(
    'pins %s to %s',
    (name, version) => {
      expect(version).toMatch(/^\d+\.\d+\.\d+(-[\w.]+)?$/);
      expect(lock.packages[`node_modules/${name}`]?.version).toBe(version);
    },
  );

  it('is locked as it is declared', () => {
    const { dependencies, devDependencies, engines, bin } = manifest;
    expect(lock.packages['']).toMatchObject({ dependencies, devDependencies, engines, bin });
  });

  it('is locked without the address of any registry', () => {
    expect(read('package-lock.json')).not.toContain('"resolved"');
  });

  it('runs on Node 20.19 and later', () => {
    expect(manifest.engines).toEqual({ node: '>=20.19' });
  });

  it('has the scripts that it names and those that it starts', () => {
    for (const script of Object.values(manifest.bin)) expect(existsSync(new URL(`../${script}`, import.meta.url))).toBe(true);
    for (const name of ['broker.js', 'brokerd.js'] as const) {
      expect([basename(binScript(name)), basename(dirname(binScript(name)))]).toEqual([name, 'bin']);
      expect(existsSync(binScript(name))).toBe(true);
    }
  });
});
