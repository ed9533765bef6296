//! Where session records are kept: the trait, and the stores that come with the crate.
