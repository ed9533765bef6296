//! Whether what a program decided can be held, and what this machine can hold at most.

use warmline_core::exchange::Trouble;
use warmline_core::policy::{Ceilings, Policy};

use super::{EngineSettings, Group as _, ServerSettings};

/// Whether every value of a server's policy lies within its range.
///
/// # Errors
/// `config-bad-value` names the server, the setting and what is possible.
pub(crate) fn check_policy(server: &str, policy: &Policy) -> Result<(), Trouble> {
    let settings = ServerSettings {
        policy: policy.clone(),
        ..ServerSettings::default()
    };
    settings.checked().map_err(|error| {
        let mut trouble = Trouble::from(error);
        trouble.what = format!("`{server}` cannot be declared so: {}", trouble.what);
        trouble
    })
}

/// Whether every limit of the engine lies within its range.
///
/// # Errors
/// `config-bad-value` names the setting and what is possible.
pub(crate) fn check_ceilings(ceilings: &Ceilings) -> Result<(), Trouble> {
    let settings = EngineSettings {
        ceilings: *ceilings,
        ..EngineSettings::default()
    };
    settings.checked().map_err(Trouble::from)
}

/// How many programs fit into some memory; one always does.
pub(crate) fn processes_that_fit(bytes: u64) -> u32 {
    u32::try_from(bytes / PER_PROCESS)
        .unwrap_or(u32::MAX)
        .max(1)
}

/// What a program is thought to need. Real ones take 60 to 200 MiB.
const PER_PROCESS: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use warmline_core::code::Code;

    #[test]
    fn a_limit_of_zero_is_an_error_that_names_it() {
        let policy = Policy {
            max_per_key: 0,
            ..Policy::default()
        };
        let trouble = check_policy("github", &policy).unwrap_err();
        assert_eq!(trouble.code, Code::ConfigBadValue);
        assert_eq!(
            trouble.what,
            "`github` cannot be declared so: `max_per_key` cannot be 0"
        );
        assert_eq!(trouble.hint.as_deref(), Some("1 to 10000 is possible"));

        let ceilings = Ceilings {
            processes: 0,
            ..Ceilings::default()
        };
        let trouble = check_ceilings(&ceilings).unwrap_err();
        assert_eq!(trouble.what, "`limits.processes` cannot be 0");
        assert!(check_policy("github", &Policy::default()).is_ok());
        assert!(check_ceilings(&Ceilings::default()).is_ok());
    }

    #[test]
    fn one_program_fits_into_any_memory() {
        for (bytes, fit) in [
            (0, 1),
            (1, 1),
            (256 << 20, 2),
            (8 << 30, 64),
            (u64::MAX, u32::MAX),
        ] {
            assert_eq!(processes_that_fit(bytes), fit);
        }
    }
}
