//! The pool's shell with a fake server behind it, on a paused clock.

mod cancellation;
mod counters;
mod fake;
mod first_contact;
mod lease_requests;
mod limits;
mod maintenance;
mod shutdown;
mod spares;

use std::sync::Arc;

use warmline_core::exchange::Diagnostic;
use warmline_core::policy::{BreakerPolicy, EngineLimits};
use warmline_core::pool::{HealthCheckResult, LeaseOutcome, QueuePosition};
use warmline_core::pool_key::PoolKey;

use super::*;
use crate::clock;
use counters::PoolGauges;
use fake::{Fake, World};
