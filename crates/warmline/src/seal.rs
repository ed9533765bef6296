//! Secrets of an instance: keyed digests, and the ring of keys that seals what is stored.
