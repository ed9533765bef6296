use http::HeaderValue;
use proptest::prelude::*;

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn headers(pairs: Pairs<'_>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(
            HeaderName::try_from(*name).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    map
}

fn identity(rule: &HeaderRule, pairs: Pairs<'_>) -> Option<IdentityName> {
    rule.identity(&headers(pairs)).unwrap()
}

const FULL: [(&str, &str); 5] = [
    ("Authorization", "Bearer canary-1"),
    ("X-Tenant-ID", "acme"),
    ("X-User-ID", "alice"),
    ("X-API-Key", "canary-2"),
    ("Cookie", "sid=canary-3"),
];

/// A60, A61, A102: each header of the standard list splits, and so does its absence.
#[test]
fn each_header_of_the_list_splits_identities() {
    let rule = HeaderRule::default();
    let whole = identity(&rule, &FULL);
    for at in 0..FULL.len() {
        let mut other = FULL;
        other[at].1 = "another";
        assert_ne!(identity(&rule, &other), whole, "{}", FULL[at].0);
        let mut fewer = FULL.to_vec();
        fewer.remove(at);
        assert_ne!(identity(&rule, &fewer), whole, "{}", FULL[at].0);
    }
}

/// A61: names compare without case, and the order of the headers makes no difference.
#[test]
fn case_and_order_make_no_difference() {
    let rule = HeaderRule::default();
    let mut turned: Vec<(String, &str)> = FULL
        .iter()
        .map(|(name, value)| (name.to_ascii_uppercase(), *value))
        .collect();
    turned.reverse();
    let turned: Vec<(&str, &str)> = turned.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    assert_eq!(identity(&rule, &turned), identity(&rule, &FULL));
    let configured = HeaderRule::from_names(["x-user-id", " X-Tenant-Id", "X-USER-ID"]).unwrap();
    assert_eq!(
        configured,
        HeaderRule::from_names(["X-Tenant-ID", "X-User-ID"]).unwrap()
    );
}

/// A62: headers outside the list split nothing.
#[test]
fn other_headers_do_not_split() {
    let rule = HeaderRule::default();
    let mut more = FULL.to_vec();
    more.extend([
        ("User-Agent", "a"),
        ("Traceparent", "00-1"),
        ("Accept", "*/*"),
        ("X-Correlation-ID", "7"),
    ]);
    assert_eq!(identity(&rule, &more), identity(&rule, &FULL));
}

/// A61: the list is configurable, and what is not on it does not count.
#[test]
fn a_rule_of_ones_own_looks_at_its_headers_only() {
    let rule = HeaderRule::from_names(["X-Team"]).unwrap();
    assert_eq!(identity(&rule, &FULL), None);
    let lamp = identity(&rule, &[("x-team", "lamp")]);
    assert!(lamp.is_some());
    assert_ne!(lamp, identity(&rule, &[("x-team", "desk")]));
}

#[test]
fn what_is_missing_is_nobody_or_a_typed_error() {
    let rule = HeaderRule::from_names(["X-Tenant-ID", "X-User-ID"]).unwrap();
    let half = [("X-Tenant-ID", "acme"), ("X-User-ID", " ")];
    let table: [(HeaderRequirement, Pairs<'_>, Option<&str>); 6] = [
        (HeaderRequirement::Optional, &[], None),
        (HeaderRequirement::Optional, &half, None),
        (
            HeaderRequirement::Any,
            &[],
            Some("no header says who is asking"),
        ),
        (HeaderRequirement::Any, &half, None),
        (
            HeaderRequirement::All,
            &half,
            Some("the header `x-user-id` is missing"),
        ),
        (HeaderRequirement::All, &FULL, None),
    ];
    for (need, pairs, error) in table {
        let found = rule.clone().require(need).identity(&headers(pairs));
        match error {
            Some(what) => {
                let diagnostic = found.unwrap_err();
                assert_eq!(diagnostic.code, Code::IdentityMissing);
                assert_eq!(diagnostic.message, what);
            },
            None => assert_eq!(found.unwrap().is_some(), !pairs.is_empty()),
        }
    }
}

/// A71: a rule that cannot be used fails when it is made.
#[test]
fn a_rule_that_cannot_be_used_is_refused_at_once() {
    let many: Vec<String> = (0..33).map(|n| format!("x-{n}")).collect();
    let table: [&[&str]; 3] = [&[], &["X User"], &["", "x-a"]];
    for names in table {
        assert_eq!(
            HeaderRule::from_names(names).unwrap_err().code,
            Code::ConfigBadValue
        );
    }
    assert_eq!(
        HeaderRule::from_names(many).unwrap_err().code,
        Code::ConfigBadValue
    );
}

#[test]
fn whoever_a_rule_does_not_find_is_missing() {
    let usual = HeaderRule::default();
    let found = identify(&usual, &headers(&FULL)).unwrap();
    assert_eq!(Some(found), identity(&usual, &FULL));
    let rule = HeaderRule::from_names(["X-Team"]).unwrap();
    for (rule, pairs) in [(&usual, &FULL[..0]), (&rule, &FULL)] {
        let diagnostic = identify(rule, &headers(pairs)).unwrap_err();
        assert_eq!(diagnostic.code, Code::IdentityMissing);
    }
}

/// A66: the digest of an identity cannot be made again without the secret of the instance.
#[test]
fn a_digest_is_keyed_by_the_instance() {
    let (one, other) = (Keyring::ephemeral().unwrap(), Keyring::ephemeral().unwrap());
    let alice = IdentityName::named("alice");
    assert_eq!(
        alice.digest(&one),
        IdentityName::named("alice").digest(&one)
    );
    assert_ne!(alice.digest(&one), IdentityName::named("bob").digest(&one));
    assert_ne!(alice.digest(&one), alice.digest(&other));
}

/// A66: nothing of a name is printed.
#[test]
fn a_name_is_never_printed() {
    let of_headers = identity(&HeaderRule::default(), &FULL).unwrap();
    for name in [of_headers, IdentityName::named("canary-name")] {
        assert!(!format!("{name:?} {name:#?}").contains("canary"));
    }
}

#[test]
fn only_a_plain_name_becomes_a_file_name() {
    for good in ["alice", "a", "Alice.B-c_d", "al@example.org", "a+b"] {
        assert_eq!(
            IdentityName::named(good).as_file_name().as_deref(),
            Some(good)
        );
    }
    let long = "a".repeat(129);
    for bad in [
        "", ".", "..", ".hidden", "a/b", "../a", "a\\b", "a\0", "a\n", "ä", "a b", "~", &long,
    ] {
        assert_eq!(IdentityName::named(bad).as_file_name(), None, "{bad:?}");
    }
    assert_eq!(IdentityName::composed(["alice"]).as_file_name(), None);
    assert_eq!(IdentityName::process().as_file_name(), None);
}

/// An identity of several parts, as that of a signed token, has a file of its own: nobody
/// else's name leads there.
#[test]
fn an_identity_of_several_parts_has_a_file_name_of_its_own() {
    let name = |parts: &[&str]| {
        let name = IdentityName::composed(parts);
        name.as_file_name().map(Cow::into_owned)
    };
    for (parts, expected) in [
        (
            &["jwt", "https://idp.example.com/", "alice"][..],
            "jwt,https%3A%2F%2Fidp.example.com%2F,alice",
        ),
        (&["jwt", "i", "../a,b"], "jwt,i,..%2Fa%2Cb"),
        (&["jwt", "i", "100%ä"], "jwt,i,100%25%C3%A4"),
        (&["jwt", "i", "email", "a"], "jwt,i,email,a"),
        (&["jwt", "i,email", "a"], "jwt,i%2Cemail,a"),
        (&["jwt", "", ""], "jwt,,"),
    ] {
        assert_eq!(name(parts).as_deref(), Some(expected), "{parts:?}");
    }
    assert_eq!(name(&["..", ""]), None);
    assert_eq!(name(&["jwt", "i", &"a".repeat(250)]), None);
}

#[test]
fn names_of_two_kinds_are_never_equal() {
    let rule = HeaderRule::from_names(["named"]).unwrap();
    let names = [
        IdentityName::process(),
        IdentityName::named(""),
        IdentityName::named("process"),
        IdentityName::named("alice"),
        IdentityName::composed(["alice"]),
        IdentityName::composed(["named", "alice"]),
        identity(&rule, &[("named", "alice")]).unwrap(),
    ];
    for (at, one) in names.iter().enumerate() {
        for other in &names[at + 1..] {
            assert_ne!(one.parts(), other.parts());
        }
    }
}

/// Few letters, names that are also values: what a careless join would mix up.
fn adversarial_headers() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop::sample::select(vec!["a", "b", "ab", "a-b"]).prop_map(str::to_owned);
    let value = prop::sample::select(vec![
        "a", "b", "ab", "a-b", "a:b", ":", ",", "a,b", "1", "a\tb", "headers",
    ])
    .prop_map(str::to_owned);
    prop::collection::vec((name, value), 0..5)
}

/// What the rule may see of headers: for each name its values in order.
fn seen(pairs: &[(String, String)]) -> Vec<(&str, Vec<&str>)> {
    let mut names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .map(|wanted| {
            let values = pairs.iter().filter(|(name, _)| name == wanted);
            (wanted, values.map(|(_, value)| value.as_str()).collect())
        })
        .collect()
}

fn rule_parts(pairs: &[(String, String)]) -> Vec<Vec<u8>> {
    let rule = HeaderRule::from_names(["a", "b", "ab", "a-b"]).unwrap();
    let borrowed: Vec<(&str, &str)> = pairs
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    identity(&rule, &borrowed).map_or_else(Vec::new, |name| {
        name.parts().into_iter().map(<[u8]>::to_vec).collect()
    })
}

proptest! {
    /// A60, A101: two requests have equal parts exactly if their headers say the same.
    #[test]
    fn parts_are_equal_exactly_for_equal_headers(one in adversarial_headers(), other in adversarial_headers()) {
        prop_assert_eq!(rule_parts(&one) == rule_parts(&other), seen(&one) == seen(&other));
    }

    /// A60: parts are never joined, wherever they are split.
    #[test]
    fn composed_parts_keep_their_borders(one in prop::collection::vec("[ab:,]{0,3}", 0..4), other in prop::collection::vec("[ab:,]{0,3}", 0..4)) {
        let (left, right) = (IdentityName::composed(&one), IdentityName::composed(&other));
        prop_assert_eq!(left.parts() == right.parts(), one == other);
    }
}
