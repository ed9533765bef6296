//! What may be said of settings, and what may not.

use super::*;

#[test]
fn what_is_said_is_read_by_the_form_of_the_setting() {
    let secs = |secs| Ok(Value::Time(Duration::from_secs(secs)));
    let count = Kind::count(1..=10);
    let time = Kind::time().or(&["none"]);
    let word =
        Kind::words(&["auto", "always", "never"]).also(&[("true", "always"), ("false", "never")]);
    #[rustfmt::skip]
    let table = [
        (&count, Said::Number(3),               Ok(Value::Count(3))),
        (&count, Said::Variable(" 3 "),         Ok(Value::Count(3))),
        (&count, Said::Number(0),               Err("cannot be 0")),
        (&count, Said::Number(-1),              Err("cannot be -1")),
        (&count, Said::Number(i64::MAX),        Err("cannot be 9223372036854775807")),
        (&count, Said::Text("3"),               Err("is not a whole number: `3`")),
        (&count, Said::Variable("ten"),         Err("is not a whole number: `ten`")),
        (&time,  Said::Text("30s"),             secs(30)),
        (&time,  Said::Text("none"),            Ok(Value::Word("none"))),
        (&time,  Said::Text("10"),              Err("is not a duration: `10`")),
        (&time,  Said::Number(10),              Err("is not a duration: 10")),
        (&time,  Said::Variable("10"),          Err("is not a duration: `10`")),
        (&time,  Said::Elsewhere("300.0"),      secs(300)),
        (&time,  Said::Elsewhere("60"),         secs(60)),
        (&time,  Said::Elsewhere("2min"),       secs(120)),
        (&time,  Said::Elsewhere("0"),          Err("is not a duration: `0`")),
        (&time,  Said::Elsewhere("nan"),        Err("is not a duration: `nan`")),
        (&time,  Said::Elsewhere("inf"),        Err("is not a duration: `inf`")),
        (&time,  Said::Elsewhere("-1"),         Err("is not a duration: `-1`")),
        (&time,  Said::Elsewhere("1e300"),      Err("is not a duration: `1e300`")),
        (&time,  Said::Elsewhere("1e9"),        Err("cannot be 1000000000s")),
        (&time,  Said::Variable("\u{1b}[2J"),   Err("is not a duration: `\\u{1b}[2J`")),
        (&word,  Said::Text("auto"),            Ok(Value::Word("auto"))),
        (&word,  Said::Switch(true),            Ok(Value::Word("always"))),
        (&word,  Said::Variable("false"),       Ok(Value::Word("never"))),
        (&word,  Said::Text("sometimes"),       Err("cannot be `sometimes`")),
        (&word,  Said::Number(1),               Err("is not a text: 1")),
        (&Kind::switch(), Said::Elsewhere("False"), Ok(Value::Switch(false))),
        (&Kind::switch(), Said::Variable("maybe"),  Err("is not `true` or `false`: `maybe`")),
        (&Kind::size(1..=1 << 20), Said::Text("64KiB"), Ok(Value::Size(64 << 10))),
        (&Kind::size(1..=1 << 20), Said::Text("2MiB"),  Err("cannot be 2MiB")),
        (&Kind::size(1..=1 << 20), Said::Text("64"),    Err("is not a size: `64`")),
        (&Kind::texts(), Said::Variable("a, b,"),   Ok(Value::Texts(vec!["a".into(), "b".into()]))),
        (&Kind::texts(), Said::Text("a"),           Err("is not a list of texts: `a`")),
        (&Kind::path(),  Said::Other("a table"),    Err("is a path, not a table")),
        (&Kind::path(),  Said::Text(" "),           Err("is not a path: ` `")),
    ];
    for (kind, said, expected) in table {
        let read = kind.read(&said);
        let read = read.as_ref().map_err(|wrong| wrong.what.as_str());
        match expected {
            Ok(value) => assert_eq!(read, Ok(&value), "{said:?}"),
            Err(what) => assert_eq!(read, Err(what), "{said:?}"),
        }
    }
}

#[test]
fn the_nearest_word_is_named() {
    let word = Kind::words(&["run", "identity", "call", "server"]);
    let hint = |text| word.read(&Said::Text(text)).unwrap_err().hint.unwrap();
    assert_eq!(hint("identiy"), "did you mean `identity`?");
    assert_eq!(hint("x"), "write `run`, `identity`, `call` or `server`");
}

#[test]
fn a_long_value_is_not_repeated_as_a_whole() {
    let long = "x".repeat(10_000);
    let wrong = Kind::time().read(&Said::Variable(&long)).unwrap_err();
    assert!(wrong.what.len() < 100, "{wrong:?}");
}

#[test]
fn values_are_shown_as_they_can_be_written() {
    #[rustfmt::skip]
    let table = [
        (Value::Time(Duration::from_millis(1500)), "1500ms"),
        (Value::Time(Duration::from_secs(90)),     "90s"),
        (Value::Time(Duration::from_secs(120)),    "2min"),
        (Value::Time(Duration::from_secs(3600)),   "1h"),
        (Value::Size(16 << 20),                    "16MiB"),
        (Value::Size(1000),                        "1000B"),
        (Value::Texts(Vec::new()),                 "none"),
    ];
    for (value, shown) in table {
        assert_eq!(value.to_string(), shown);
    }
}
