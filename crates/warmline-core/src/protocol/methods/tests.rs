//! The table of methods against the list of versions.

use super::*;

#[test]
fn every_method_is_in_the_versions_that_have_it() {
    #[rustfmt::skip]
    let table: &[(&str, [bool; 5])] = &[
        // name                                        24-11  25-03  25-06  25-11  26-07
        ("initialize",                                 [true,  true,  true,  true,  false]),
        ("notifications/initialized",                  [true,  true,  true,  true,  false]),
        ("ping",                                       [true,  true,  true,  true,  false]),
        ("server/discover",                            [false, false, false, false, true]),
        ("tools/list",                                 [true,  true,  true,  true,  true]),
        ("tools/call",                                 [true,  true,  true,  true,  true]),
        ("resources/list",                             [true,  true,  true,  true,  true]),
        ("resources/templates/list",                   [true,  true,  true,  true,  true]),
        ("resources/read",                             [true,  true,  true,  true,  true]),
        ("resources/subscribe",                        [true,  true,  true,  true,  false]),
        ("resources/unsubscribe",                      [true,  true,  true,  true,  false]),
        ("prompts/list",                               [true,  true,  true,  true,  true]),
        ("prompts/get",                                [true,  true,  true,  true,  true]),
        ("completion/complete",                        [true,  true,  true,  true,  true]),
        ("logging/setLevel",                           [true,  true,  true,  true,  false]),
        ("subscriptions/listen",                       [false, false, false, false, true]),
        ("tasks/get",                                  [false, false, false, true,  true]),
        ("tasks/cancel",                               [false, false, false, true,  true]),
        ("tasks/list",                                 [false, false, false, true,  false]),
        ("tasks/result",                               [false, false, false, true,  false]),
        ("tasks/update",                               [false, false, false, false, true]),
        ("roots/list",                                 [true,  true,  true,  true,  false]),
        ("sampling/createMessage",                     [true,  true,  true,  true,  false]),
        ("elicitation/create",                         [false, false, true,  true,  false]),
        ("notifications/cancelled",                    [true,  true,  true,  true,  true]),
        ("notifications/progress",                     [true,  true,  true,  true,  true]),
        ("notifications/message",                      [true,  true,  true,  true,  true]),
        ("notifications/tools/list_changed",           [true,  true,  true,  true,  true]),
        ("notifications/prompts/list_changed",         [true,  true,  true,  true,  true]),
        ("notifications/resources/list_changed",       [true,  true,  true,  true,  true]),
        ("notifications/resources/updated",            [true,  true,  true,  true,  true]),
        ("notifications/roots/list_changed",           [true,  true,  true,  true,  false]),
        ("notifications/elicitation/complete",         [false, false, false, true,  false]),
        ("notifications/tasks/status",                 [false, false, false, true,  false]),
        ("notifications/tasks",                        [false, false, false, false, true]),
        ("notifications/subscriptions/acknowledged",   [false, false, false, false, true]),
    ];
    assert_eq!(table.len(), Method::ALL.len());
    for (name, versions) in table {
        let method = Method::find(name).expect(name);
        assert_eq!(
            Version::ALL.map(|version| method.is_in_version(version)),
            *versions,
            "{name}"
        );
        let is_notice = name.starts_with("notifications/");
        assert_eq!(method.form == MethodForm::Notification, is_notice, "{name}");
    }
}

#[test]
fn only_reads_and_idempotent_controls_may_be_repeated() {
    let unsafe_ones: Vec<&str> = Method::ALL
        .iter()
        .filter(|method| {
            method.form == MethodForm::Request && method.idempotency == Idempotency::NotIdempotent
        })
        .map(|method| method.name)
        .collect();
    let expected = [
        "initialize",
        "tools/call",
        "tasks/update",
        "sampling/createMessage",
        "elicitation/create",
    ];
    assert_eq!(unsafe_ones, expected);
    assert_eq!(method_idempotency("tools/list"), Idempotency::Idempotent);
    assert_eq!(
        method_idempotency("vendor/anything"),
        Idempotency::NotIdempotent
    );
}

#[test]
fn names_belong_to_the_methods_that_have_them() {
    let names = |has: fn(&Method) -> bool| -> Vec<&str> {
        Method::ALL
            .iter()
            .filter(|method| has(method))
            .map(|method| method.name)
            .collect()
    };
    assert_eq!(
        names(|m| m.name_param == Some(NameParam::Name)),
        ["tools/call", "prompts/get"]
    );
    assert_eq!(
        names(|m| m.name_param == Some(NameParam::Uri)),
        ["resources/read"]
    );
    assert!(
        names(|m| m.name_param == Some(NameParam::TaskId))
            .iter()
            .all(|n| n.starts_with("tasks/"))
    );
}
