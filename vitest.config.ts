import { defineConfig } from 'vitest/config';

const common = { pool: 'forks', globalSetup: 'test/support/no-leaks.ts' } as const;

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          ...common,
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: ['test/e2e/**', 'test/real/**'],
        },
      },
      {
        // Real brokers and real signals: one file after the other, so that a slow machine stays usable.
        test: { ...common, name: 'e2e', include: ['test/e2e/**/*.test.ts'], fileParallelism: false, testTimeout: 120_000 },
      },
      {
        test: { ...common, name: 'real', include: ['test/real/**/*.test.ts'], fileParallelism: false, testTimeout: 120_000 },
      },
    ],
  },
});
