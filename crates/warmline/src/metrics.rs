//! Counters, gauges and histograms that the engine keeps, and the snapshot of them.
