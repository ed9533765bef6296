//! Values of options, as people write them.

use std::net::SocketAddr;
use std::time::Duration;

use warmline::settings::{AuthWord, OpsListen, parse_duration};

/// A time above zero.
pub(super) fn duration(written: &str) -> Result<Duration, String> {
    parse_duration(written)
        .ok_or_else(|| "write a number above 0 and a unit: 500ms, 30s, 2min, 1h".to_owned())
}

/// An IP address and a port.
pub(super) fn address(written: &str) -> Result<SocketAddr, String> {
    warmline::settings::parse_address(written).ok_or_else(|| {
        "write an IP address and a port: 127.0.0.1:8484, [::1]:8484, or a port alone".to_owned()
    })
}

/// How long something lasts, in days too: at most ten years.
pub(super) fn lasting(written: &str) -> Result<Duration, String> {
    let days = written.trim().strip_suffix('d').map(str::trim);
    let days = days.and_then(|days| days.parse::<u64>().ok());
    let lasts = match days {
        Some(days) => Some(Duration::from_secs(days.saturating_mul(DAY))),
        None => parse_duration(written),
    };
    let within = Duration::from_secs(1)..=Duration::from_secs(3_650 * DAY);
    lasts
        .filter(|lasts| within.contains(lasts))
        .ok_or_else(|| "write a number and a unit: 90d, 12h, 30min".to_owned())
}

const DAY: u64 = 24 * 3_600;

/// How callers show who they are.
pub(super) fn auth(written: &str) -> Result<AuthWord, String> {
    AuthWord::parse(written).ok_or_else(|| "write local, tokens, jwt, proxy or none".to_owned())
}

/// Where machines watch.
pub(super) fn ops(written: &str) -> Result<OpsListen, String> {
    match written {
        "none" => Ok(OpsListen::None),
        _ => match address(written) {
            Ok(address) => Ok(OpsListen::At(address)),
            Err(hint) => Err(format!("{hint}; `none` opens nothing")),
        },
    }
}

/// A port, which may be 0.
pub(super) fn port(written: &str) -> Result<u16, String> {
    written
        .parse()
        .map_err(|_| "a port is a number from 0 to 65535".to_owned())
}
