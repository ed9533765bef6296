// A client on the TypeScript SDK v1: the legacy era only. See `client.mjs` for what it does.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { visit } from './client.mjs';

await visit(async (url) => {
  const client = new Client({ name: 'client-v1', version: '1.0.0' });
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return { client, version: transport.protocolVersion, end: () => transport.terminateSession() };
});
