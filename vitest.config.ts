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
          exclude: ['test/e2e/**', 'test/stress/**'],
        },
      },
      {
        // Real brokers and real signals: one file after the other, so that a slow machine stays usable.
        test: { ...common, name: 'e2e', include: ['test/e2e/**/*.test.ts'], fileParallelism: false, testTimeout: 120_000 },
      },
      {
        test: { ...common, name: 'stress', include: ['test/stress/**/*.test.ts'], fileParallelism: false, testTimeout: 600_000 },
      },
    ],
  },
});
