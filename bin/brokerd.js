#!/usr/bin/env node
'use strict';
require('../dist/brokerd.cjs').main(process.argv.slice(2));
