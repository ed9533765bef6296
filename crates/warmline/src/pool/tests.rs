//! The pool's shell with a fake server behind it, on a paused clock.

mod asking;
mod cancelling;
mod ending;
mod fake;
mod keeping;
mod limits;
mod meeting;
mod spares;

use std::sync::Arc;

use warmline_core::exchange::Trouble;
use warmline_core::key::Key;
use warmline_core::policy::{BreakerPolicy, Ceilings};
use warmline_core::pool::{Health, Outcome};

use super::tally::Present;
use super::*;
use crate::clock;
use fake::{Fake, World};
