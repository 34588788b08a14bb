/** The least a program can do with a broker: connect, hear its hello, say so, leave. */
import { connectBroker } from '../dist/lib/index.js';

const client = await connectBroker({ cwd: process.cwd() });
process.stdout.write('hello\n');
client.close();
