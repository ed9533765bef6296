// A client on the TypeScript SDK v2, legacy as it comes; with WARMLINE_PARTS_ERA=auto it asks
// `server/discover` first. See `client.mjs` for what it does.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { visit } from './client.mjs';

const mode = process.env.WARMLINE_PARTS_ERA;

await visit(async (url) => {
  const options = mode ? { versionNegotiation: { mode } } : {};
  const client = new Client({ name: 'client-v2', version: '1.0.0' }, options);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return { client, version: client.getNegotiatedProtocolVersion(), end: async () => {} };
});
