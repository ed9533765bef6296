//! Credentials: what we show a server, taken fresh for every request.
