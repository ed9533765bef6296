//! The decision about sending again, row by row.
