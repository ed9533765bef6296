// A counter on the TypeScript SDK v1: the legacy era, one count for each session.
//
//   node counter-v1.mjs                over stdio
//   node counter-v1.mjs http [PORT]    over HTTP, on a free port of the loopback interface or on
//                                      this one
//   node counter-v1.mjs https PEM      over HTTP with TLS; the file holds certificate and key
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import express from 'express';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { announce, endWithStdin } from './announce.mjs';

function counter() {
  let count = 0;
  const server = new McpServer({ name: 'counter-v1', version: '1.0.0' });
  server.registerTool('bump', { description: 'Count the calls of this session' }, () => {
    count += 1;
    return { content: [{ type: 'text', text: String(count) }] };
  });
  return server;
}

function forgotten(response) {
  const error = { code: -32001, message: 'Session not found' };
  response.status(404).json({ jsonrpc: '2.0', error, id: null });
}

function overHttp() {
  const sessions = new Map();
  const app = express();
  app.use(express.json());
  app.all('/mcp', async (request, response) => {
    const id = request.headers['mcp-session-id'];
    let transport = sessions.get(id);
    if (id && !transport) return forgotten(response);
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (fresh) => sessions.set(fresh, transport),
      });
      transport.onclose = () => sessions.delete(transport.sessionId);
      await counter().connect(transport);
    }
    await transport.handleRequest(request, response, request.body);
  });
  return app;
}

function serveHttp(port) {
  endWithStdin();
  announce(overHttp().listen(port, '127.0.0.1'));
}

function serveHttps(file) {
  endWithStdin();
  const pem = readFileSync(file);
  const server = createServer({ cert: pem, key: pem }, overHttp());
  announce(server.listen(0, '127.0.0.1'), 'https://localhost');
}

if (process.argv[2] === 'http') serveHttp(Number(process.argv[3] ?? 0));
else if (process.argv[2] === 'https') serveHttps(process.argv[3]);
else await counter().connect(new StdioServerTransport());
