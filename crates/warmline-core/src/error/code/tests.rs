//! Codes and reasons: each once, each with a page.

use std::collections::BTreeSet;

use super::*;
use crate::word_enum::WordEnum as _;

fn is_kebab_case(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c == '-';
    word.chars().all(is_plain) && !word.starts_with('-') && !word.ends_with('-')
}

#[test]
fn words_of_codes_are_kebab_case_and_unique() {
    let words: BTreeSet<&str> = Code::ALL.map(Code::as_str).into();
    assert_eq!(words.len(), Code::ALL.len());
    assert!(words.into_iter().all(is_kebab_case));
}

#[test]
fn words_of_reasons_are_kebab_case_and_unique() {
    let words: BTreeSet<&str> = Reason::ALL.map(Reason::as_str).into();
    assert_eq!(words.len(), Reason::ALL.len());
    assert!(words.into_iter().all(is_kebab_case));
}

#[test]
fn a_code_is_found_by_its_word() {
    for code in Code::ALL {
        assert_eq!(Code::parse(code.as_str()), Some(code));
        assert_eq!(code.to_string(), code.as_str());
    }
    assert_eq!(Code::parse("no-such-code"), None);
}

#[test]
fn every_code_has_a_page() {
    for code in Code::ALL {
        assert!(code.meaning().ends_with('.'), "{code}");
        assert!(!code.causes().is_empty(), "{code}");
        assert!(!code.suggestions().is_empty(), "{code}");
        assert!(code.page().starts_with(&format!("# {code}\n\n")), "{code}");
        let lines = code.causes().into_iter().chain(code.suggestions());
        for line in lines {
            assert!(
                !line.ends_with('.') && !line.contains('!'),
                "{code}: {line}"
            );
        }
    }
}

#[test]
fn the_page_of_errors_lists_every_code() {
    let page = include_str!("../../../../../docs/reference/errors.md");
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| ["))
        .collect();
    let expected = Code::ALL.map(|code| {
        let link = format!("../../crates/warmline-core/errors/{code}.md");
        format!("| [`{code}`]({link}) | {} |", code.meaning())
    });
    assert_eq!(rows, expected);
}

/// Each reader gets advice in its own terms; a call that may have been executed is checked first.
#[test]
fn advice_speaks_to_its_reader() {
    let foreign: [(Audience, &[&str]); 2] = [
        (Audience::Rust, &["--", "`warmline ", "line and column"]),
        (Audience::Gateway, &["::", "builder", "Warmline`", "--"]),
    ];
    for (audience, words) in foreign {
        for code in Code::ALL {
            let check = code.advice(audience, Unknown);
            assert!(
                check.starts_with("check whether it was executed"),
                "{code}: {check}"
            );
            for advice in [code.advice(audience, Unsent), check] {
                assert!(!advice.is_empty() && !advice.ends_with('.'), "{code}");
                assert!(
                    !words.iter().any(|word| advice.contains(word)),
                    "{code}: {advice}"
                );
            }
        }
    }
}

#[test]
fn every_reason_belongs_to_a_code_that_reports_failures() {
    for reason in Reason::ALL {
        let code = reason.code();
        assert!(Code::ALL.contains(&code), "{reason}");
        assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        assert!(reason.meaning().ends_with('.'), "{reason}");
        assert_ne!(
            code,
            Code::ToolFailed,
            "{reason}: a tool that answered is no failure"
        );
    }
}

/// reliability P6: whoever calls is told, by the exit code too.
#[test]
fn exit_codes_carry_delivery() {
    #[rustfmt::skip]
    let table = [
        (Code::ConfigUnreadable,  [2, 2, 2, 2]),
        (Code::ConfigUnknownKey,  [2, 2, 2, 2]),
        (Code::ConfigBadValue,    [2, 2, 2, 2]),
        (Code::ConfigUntrusted,   [2, 2, 2, 2]),
        (Code::UsageBadArgument,  [2, 2, 2, 2]),
        (Code::ServerUnknown,     [2, 2, 2, 2]),
        (Code::ToolUnknown,       [2, 2, 2, 2]),
        (Code::CredentialRefused, [3, 3, 4, 1]),
        (Code::BadMessage,        [2, 2, 2, 2]),
        (Code::EraUnknown,        [2, 2, 2, 2]),
        (Code::CannotReach,       [3, 3, 4, 1]),
        (Code::OpenFailed,        [3, 3, 4, 1]),
        (Code::RequestRefused,    [3, 3, 4, 1]),
        (Code::Deadline,          [3, 3, 4, 1]),
        (Code::SessionLost,       [3, 3, 4, 1]),
        (Code::AnswerLost,        [3, 3, 4, 1]),
        (Code::BadAnswer,         [3, 3, 4, 1]),
        (Code::ToolFailed,        [1, 1, 1, 1]),
        (Code::RunUnknown,            [2, 2, 2, 2]),
        (Code::RunEnded,              [3, 3, 4, 1]),
        (Code::NotAllowed,            [2, 2, 2, 2]),
        (Code::IdentityMissing,       [2, 2, 2, 2]),
        (Code::CredentialUnavailable, [3, 3, 4, 1]),
        (Code::ResolveFailed,         [3, 3, 4, 1]),
        (Code::BreakerOpen,           [3, 3, 4, 1]),
        (Code::PoolFull,              [3, 3, 4, 1]),
        (Code::Overloaded,            [3, 3, 4, 1]),
        (Code::StoreUnavailable,      [2, 2, 2, 2]),
        (Code::RecordRefused,         [2, 2, 2, 2]),
        (Code::Draining,              [3, 3, 4, 1]),
        (Code::Cancelled,         [3, 3, 4, 1]),
        (Code::Closed,            [3, 3, 4, 1]),
        (Code::Bug,               [3, 3, 4, 1]),
    ];
    assert_eq!(table.map(|row| row.0), Code::ALL);
    for (code, exits) in table {
        assert_eq!(
            [Unsent, Refused, Unknown, Answered].map(|d| code.exit_code(d)),
            exits,
            "{code}"
        );
    }
}

#[test]
fn errors_of_ours_have_numbers_outside_the_reserved_range() {
    assert_eq!(
        [Unsent, Refused, Unknown, Answered].map(rpc_error_code),
        [Some(7501), Some(7502), Some(7503), None]
    );
}
