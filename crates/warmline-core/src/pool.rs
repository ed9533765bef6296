//! The pool: what becomes of sessions, waiters and spares. Event in, effects out.
