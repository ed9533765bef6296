"""How a server of these tests says where it is, and how it ends with the test that started it."""

import os
import socket
import sys
import threading

import uvicorn


def serve(app, port=0):
    """Serve an application on a port of the loopback interface, a free one unless it is said;
    print `ready <url>`."""
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    print(f"ready http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def _end_with_stdin():
    sys.stdin.buffer.read()
    os._exit(0)
