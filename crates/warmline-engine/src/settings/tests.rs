//! What the machine decides where nobody else did.

use super::*;

/// The default number of programs is what fits into the memory; what was said stays.
#[test]
fn a_small_machine_holds_fewer_programs_unless_somebody_said_otherwise() {
    let mut usual = EngineSettings::default();
    usual.cap_processes(Some(4));
    assert_eq!(usual.limits.processes, 4);
    assert_eq!(
        usual.origin("limits.processes"),
        SettingOrigin::MachineLimit
    );
    let mut large = EngineSettings::default();
    large.cap_processes(Some(1_000));
    assert_eq!(large.limits.processes, 64);
    let mut said = EngineSettings::default();
    said.apply_environment(&|name: &str| {
        (name == "WARMLINE_LIMITS_PROCESSES").then(|| "64".to_owned())
    })
    .unwrap();
    said.cap_processes(Some(4));
    assert_eq!(said.limits.processes, 64);
}
