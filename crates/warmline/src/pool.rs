//! The pool's shell: the map of cells, wake-ups, and effects carried out.
