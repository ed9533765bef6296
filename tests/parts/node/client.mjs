// What every client of these tests does, whatever it is built on.
//
//   node client-*.mjs TOOL URL...    at each URL in turn: open a client, list the tools, call the
//                                    tool twice, close; then print {"version", "tools", "said"} on
//                                    one line

// `open(url)` gives a connected client, the version it negotiated, and how its session is ended.
export async function visit(open) {
  const [tool, ...urls] = process.argv.slice(2);
  for (const url of urls) {
    const { client, version, end } = await open(url);
    const tools = (await client.listTools()).tools.map((one) => one.name);
    const said = [];
    for (let call = 0; call < 2; call += 1) {
      const result = await client.callTool({ name: tool, arguments: {} });
      said.push(result.content[0].text);
    }
    await end();
    await client.close();
    console.log(JSON.stringify({ version: version ?? null, tools, said }));
  }
}
