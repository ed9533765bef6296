//! Who is asking: from headers or a name to a keyed digest.
