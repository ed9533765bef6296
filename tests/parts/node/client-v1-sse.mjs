// The same by the 2024-11-05 transport. See `client.mjs` for what it does.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { visit } from './client.mjs';

await visit(async (url) => {
  const client = new Client({ name: 'client-v1-sse', version: '1.0.0' });
  await client.connect(new SSEClientTransport(new URL(url)));
  return { client, version: null, end: async () => {} };
});
