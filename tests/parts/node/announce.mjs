// How a server of these tests says where it is, and how it ends with the test that started it.

// Prints `ready <url>` as soon as connections are accepted.
export function announce(listener, origin = 'http://127.0.0.1') {
  const say = () => console.log(`ready ${origin}:${listener.address().port}/mcp`);
  if (listener.listening) say();
  else listener.once('listening', say);
}

// Ends the process when its standard input ends, which it does when the test is gone.
export function endWithStdin() {
  process.stdin.resume();
  process.stdin.once('end', () => process.exit(0));
}
