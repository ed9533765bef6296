//! The pool's shell with a fake server behind it, on a paused clock.

mod asking;
mod cancelling;
mod ending;
mod fake;
mod keeping;
mod limits;
mod spares;

use fake::{Fake, World};

use super::tally::Present;
use super::*;
use warmline_core::pool::{Health, Outcome};
