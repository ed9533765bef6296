//! Which calls may run twice, row by row.
