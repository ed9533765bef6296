//! What may be said of settings, and what may not.

use super::*;

#[test]
fn what_is_said_is_read_by_the_form_of_the_setting() {
    let secs = |secs| Ok(SettingValue::Time(Duration::from_secs(secs)));
    let count = SettingKind::count(1..=10);
    let time = SettingKind::time().with_words(&["none"]);
    let word = SettingKind::words(&["auto", "always", "never"])
        .with_aliases(&[("true", "always"), ("false", "never")]);
    #[rustfmt::skip]
    let table = [
        (&count, RawSettingValue::Number(3),               Ok(SettingValue::Count(3))),
        (&count, RawSettingValue::Variable(" 3 "),         Ok(SettingValue::Count(3))),
        (&count, RawSettingValue::Number(0),               Err("cannot be 0")),
        (&count, RawSettingValue::Number(-1),              Err("cannot be -1")),
        (&count, RawSettingValue::Number(i64::MAX),        Err("cannot be 9223372036854775807")),
        (&count, RawSettingValue::Text("3"),               Err("is not a whole number: `3`")),
        (&count, RawSettingValue::Variable("ten"),         Err("is not a whole number: `ten`")),
        (&time,  RawSettingValue::Text("30s"),             secs(30)),
        (&time,  RawSettingValue::Text("none"),            Ok(SettingValue::Word("none"))),
        (&time,  RawSettingValue::Text("10"),              Err("is not a duration: `10`")),
        (&time,  RawSettingValue::Number(10),              Err("is not a duration: 10")),
        (&time,  RawSettingValue::Variable("10"),          Err("is not a duration: `10`")),
        (&time,  RawSettingValue::ForeignVariable("300.0"),      secs(300)),
        (&time,  RawSettingValue::ForeignVariable("60"),         secs(60)),
        (&time,  RawSettingValue::ForeignVariable("2min"),       secs(120)),
        (&time,  RawSettingValue::ForeignVariable("0"),          Err("is not a duration: `0`")),
        (&time,  RawSettingValue::ForeignVariable("nan"),        Err("is not a duration: `nan`")),
        (&time,  RawSettingValue::ForeignVariable("inf"),        Err("is not a duration: `inf`")),
        (&time,  RawSettingValue::ForeignVariable("-1"),         Err("is not a duration: `-1`")),
        (&time,  RawSettingValue::ForeignVariable("1e300"),      Err("is not a duration: `1e300`")),
        (&time,  RawSettingValue::ForeignVariable("1e9"),        Err("cannot be 1000000000s")),
        (&time,  RawSettingValue::Variable("\u{1b}[2J"),   Err("is not a duration: `\\u{1b}[2J`")),
        (&word,  RawSettingValue::Text("auto"),            Ok(SettingValue::Word("auto"))),
        (&word,  RawSettingValue::Switch(true),            Ok(SettingValue::Word("always"))),
        (&word,  RawSettingValue::Variable("false"),       Ok(SettingValue::Word("never"))),
        (&word,  RawSettingValue::Text("sometimes"),       Err("cannot be `sometimes`")),
        (&word,  RawSettingValue::Number(1),               Err("is not a text: 1")),
        (&SettingKind::switch(), RawSettingValue::ForeignVariable("False"), Ok(SettingValue::Switch(false))),
        (&SettingKind::switch(), RawSettingValue::Variable("maybe"),  Err("is not `true` or `false`: `maybe`")),
        (&SettingKind::size(1..=1 << 20), RawSettingValue::Text("64KiB"), Ok(SettingValue::Size(64 << 10))),
        (&SettingKind::size(1..=1 << 20), RawSettingValue::Text("2MiB"),  Err("cannot be 2MiB")),
        (&SettingKind::size(1..=1 << 20), RawSettingValue::Text("64"),    Err("is not a size: `64`")),
        (&SettingKind::texts(), RawSettingValue::Variable("a, b,"),   Ok(SettingValue::Texts(vec!["a".into(), "b".into()]))),
        (&SettingKind::texts(), RawSettingValue::Text("a"),           Err("is not a list of texts: `a`")),
        (&SettingKind::path(),  RawSettingValue::Other("a table"),    Err("is a path, not a table")),
        (&SettingKind::path(),  RawSettingValue::Text(" "),           Err("is not a path: ` `")),
    ];
    for (kind, said, expected) in table {
        let read = kind.parse(&said);
        let read = read.as_ref().map_err(|wrong| wrong.message.as_str());
        match expected {
            Ok(value) => assert_eq!(read, Ok(&value), "{said:?}"),
            Err(what) => assert_eq!(read, Err(what), "{said:?}"),
        }
    }
}

#[test]
fn the_nearest_word_is_named() {
    let word = SettingKind::words(&["run", "identity", "call", "server"]);
    let hint = |text| {
        word.parse(&RawSettingValue::Text(text))
            .unwrap_err()
            .hint
            .unwrap()
    };
    assert_eq!(hint("identiy"), "did you mean `identity`?");
    assert_eq!(hint("x"), "write `run`, `identity`, `call` or `server`");
}

#[test]
fn a_long_value_is_not_repeated_as_a_whole() {
    let long = "x".repeat(10_000);
    let wrong = SettingKind::time()
        .parse(&RawSettingValue::Variable(&long))
        .unwrap_err();
    assert!(wrong.message.len() < 100, "{wrong:?}");
}

#[test]
fn values_are_shown_as_they_can_be_written() {
    #[rustfmt::skip]
    let table = [
        (SettingValue::Time(Duration::from_millis(1500)), "1500ms"),
        (SettingValue::Time(Duration::from_secs(90)),     "90s"),
        (SettingValue::Time(Duration::from_secs(120)),    "2min"),
        (SettingValue::Time(Duration::from_secs(3600)),   "1h"),
        (SettingValue::Size(16 << 20),                    "16MiB"),
        (SettingValue::Size(1000),                        "1000B"),
        (SettingValue::Texts(Vec::new()),                 "none"),
    ];
    for (value, shown) in table {
        assert_eq!(value.to_string(), shown);
    }
}

#[test]
fn a_duration_needs_a_number_and_a_unit() {
    #[rustfmt::skip]
    let table = [
        ("500ms", Some(500)), ("30s", Some(30_000)), ("1.5s", Some(1_500)), ("2min", Some(120_000)),
        ("2m", Some(120_000)), ("1h", Some(3_600_000)), (" 5 s ", Some(5_000)),
        ("30", None), ("", None), ("s", None), ("-1s", None), ("1d", None), ("99999h", None), ("1..2s", None), ("0s", None), ("0.0ms", None),
    ];
    for (written, millis) in table {
        assert_eq!(
            parse_duration(written),
            millis.map(Duration::from_millis),
            "{written}"
        );
    }
}
