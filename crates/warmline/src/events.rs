//! What happened, for logs, metrics and whoever subscribes.
