#!/usr/bin/env node
'use strict';
// The bundle is CommonJS and holds everything: loading it costs one file, not a tree of modules.
require('../dist/broker.cjs')
  .run(process.argv.slice(2))
  .then((code) => {
    process.exitCode = code;
  });
