// A counter on the TypeScript SDK v2: no sessions, so one count for the whole process.
//
//   node counter-v2.mjs                over stdio, both eras
//   node counter-v2.mjs http           over HTTP, both eras, on a free port of the loopback interface
//   node counter-v2.mjs http modern    over HTTP, the modern era only
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { announce, endWithStdin } from './announce.mjs';

let count = 0;

function counter() {
  const server = new McpServer(
    { name: 'counter-v2', version: '1.0.0' },
    { capabilities: { tools: {} } },
  );
  server.registerTool('bump', { description: 'Count the calls of this process' }, async () => {
    count += 1;
    return { content: [{ type: 'text', text: String(count) }] };
  });
  return server;
}

const [transport, eras] = process.argv.slice(2);
if (transport === 'http') {
  const legacy = eras === 'modern' ? 'reject' : 'stateless';
  endWithStdin();
  announce(createServer(toNodeHandler(createMcpHandler(counter, { legacy }))).listen(0, '127.0.0.1'));
} else {
  serveStdio(counter);
}
