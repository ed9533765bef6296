//! Where a server is, looked up lazily and once.
