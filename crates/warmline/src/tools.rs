//! Tools of a server: cached lists, what their hints allow, and definitions for models.
