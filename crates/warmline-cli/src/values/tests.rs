//! Values as people type them.

use serde_json::{Value, json};

use super::*;

fn schema() -> Schema {
    Schema::of(json!({
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "n": {"type": "integer"},
            "x": {"type": "number"},
            "on": {"type": "boolean"},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "either": {"type": ["string", "integer"]},
            "state": {"enum": ["open", "closed", 3]},
            "mode": {"anyOf": [{"$ref": "#/$defs/Mode"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "sizes": {"type": "array", "items": {"type": "integer"}},
            "extra": {"type": "object"},
            "any": {},
            "circle": {"$ref": "#/properties/circle"},
        },
        "required": ["text", "n"],
        "$defs": {"Mode": {"type": "string", "enum": ["fast", "slow"]}},
    }))
}

fn arguments(words: &[&str]) -> Result<Value, String> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let given = GivenValues::read(&words, None).map_err(|p| p.parts().what.clone())?;
    let bytes = given
        .arguments(&schema())
        .map_err(|p| p.parts().what.clone())?;
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

#[test]
fn a_value_takes_the_type_that_the_schema_wants() {
    #[rustfmt::skip]
    let table = [
        (vec!["text=10"],               json!({"text": "10"})),
        (vec!["text="],                 json!({"text": ""})),
        (vec!["text=a=b"],              json!({"text": "a=b"})),
        (vec!["n=10"],                  json!({"n": 10})),
        (vec!["n=-3"],                  json!({"n": -3})),
        (vec!["x=1.5"],                 json!({"x": 1.5})),
        (vec!["on=true"],               json!({"on": true})),
        (vec!["maybe=4"],               json!({"maybe": 4})),
        (vec!["maybe=null"],            json!({"maybe": null})),
        (vec!["either=4"],              json!({"either": "4"})),
        (vec!["either:=4"],             json!({"either": 4})),
        (vec!["state=open"],            json!({"state": "open"})),
        (vec!["state=3"],               json!({"state": 3})),
        (vec!["mode=fast"],             json!({"mode": "fast"})),
        (vec!["tags=a"],                json!({"tags": ["a"]})),
        (vec!["tags=a", "tags=b"],      json!({"tags": ["a", "b"]})),
        (vec!["tags=[\"a\"]"],          json!({"tags": ["a"]})),
        (vec!["sizes=1", "sizes=2"],    json!({"sizes": [1, 2]})),
        (vec!["extra={\"a\":1}"],       json!({"extra": {"a": 1}})),
        (vec!["any=1"],                 json!({"any": "1"})),
        (vec!["any:=[1,null]"],         json!({"any": [1, null]})),
        (vec!["circle=x"],              json!({"circle": "x"})),
        (vec!["unlisted=1"],            json!({"unlisted": "1"})),
    ];
    for (words, expected) in table {
        assert_eq!(arguments(&words), Ok(expected), "{words:?}");
    }
}

#[test]
fn numbers_keep_their_digits() {
    let given = GivenValues::read(&["x=12345678901234567890.10".to_owned()], None).unwrap();
    let bytes = given.arguments(&schema()).unwrap();
    assert_eq!(bytes, r#"{"x":12345678901234567890.10}"#);
}

#[test]
fn a_value_that_cannot_be_meant_is_named() {
    #[rustfmt::skip]
    let table = [
        (vec!["n=ten"],              "`n` cannot be `ten`: it must be a whole number"),
        (vec!["n=1.5"],              "`n` cannot be `1.5`: it must be a whole number"),
        (vec!["on=yes"],             "`on` cannot be `yes`: it must be `true` or `false`"),
        (vec!["state=opn"],          "`state` cannot be `opn`: it is one of `open`, `closed`, `3`"),
        (vec!["extra=[1]"],          "`extra` cannot be `[1]`: it must be an object in JSON"),
        (vec!["sizes=a"],            "`sizes` cannot be `a`: it must be a whole number"),
        (vec!["text=a", "text=b"],   "`text` is given 2 times and is no list"),
        (vec!["any:={"],             "the value of `any` is not JSON"),
        (vec!["nothing"],            "`nothing` is not a value"),
        (vec!["=x"],                 "`=x` has no name before `=`"),
        (vec!["text=@no/such/file"], "the file of `text` cannot be read"),
    ];
    for (words, what) in table {
        assert_eq!(arguments(&words), Err(what.to_owned()), "{words:?}");
    }
}

type Told = (String, Option<String>);

fn check(words: &[&str], schema: &Schema) -> Result<Vec<String>, Told> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let given = GivenValues::read(&words, None).unwrap();
    let told = |p: Problem| (p.parts().what.clone(), p.parts().hint.clone());
    given.check_names("pay", schema).map_err(told)
}

#[test]
fn names_are_checked_before_anything_is_sent() {
    let open = Schema::of(json!({
        "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}},
        "required": ["amount"],
    }));
    let needs = || "`pay` needs `amount`".to_owned();
    let noted = "`pay` has no argument `free`; it is sent all the same".to_owned();
    assert_eq!(
        check(&["amount=1", "to=a", "free=1"], &open),
        Ok(vec![noted])
    );
    assert_eq!(
        check(&[], &open),
        Err((needs(), Some("add `amount=1`".into())))
    );
    for words in [&["amuont=1"][..], &["amount=1", "amuont=2"]] {
        let (what, hint) = check(words, &open).unwrap_err();
        assert_eq!(what, "`pay` has no argument `amuont`");
        let hint = hint.unwrap();
        assert!(hint.starts_with("did you mean `amount`?"), "{hint}");
    }
    let noted = "`pay` has no argument `tp`; it is sent all the same".to_owned();
    assert_eq!(check(&["amount=1", "tp:=1"], &open), Ok(vec![noted]));

    let closed = Schema::of(json!({
        "properties": {"amount": {"type": "integer"}}, "additionalProperties": false,
    }));
    let (what, hint) = check(&["amuont=1"], &closed).unwrap_err();
    assert_eq!(
        (what.as_str(), hint.as_deref()),
        (
            "`pay` has no argument `amuont`",
            Some("did you mean `amount`?")
        )
    );
    let (what, hint) = check(&["zzz=1"], &closed).unwrap_err();
    assert_eq!(
        (what.as_str(), hint.as_deref()),
        ("`pay` has no argument `zzz`", Some("it takes `amount`"))
    );
    assert_eq!(check(&["free=1"], &Schema::nothing()), Ok(vec![]));
}

/// What zod makes of `.default()` is required and has a default: the server fills it in.
#[test]
fn what_has_a_default_need_not_be_given() {
    let schema = Schema::of(json!({
        "properties": {
            "scale": {"enum": ["css", "device"], "default": "css"},
            "size": {"$ref": "#/$defs/Size"},
            "url": {"type": "string"},
        },
        "required": ["scale", "size", "url"],
        "$defs": {"Size": {"type": "integer", "default": 3}},
    }));
    assert_eq!(schema.required(), ["url"]);
    assert_eq!(check(&["url=a"], &schema).unwrap(), Vec::<String>::new());
    assert!(check(&["scale=css"], &schema).is_err());
}

#[test]
fn all_values_can_be_given_as_one_object() {
    let words = ["n=2".to_owned()];
    let given = GivenValues::read(&words, Some(r#"{"text": "a", "n": 1}"#)).unwrap();
    assert_eq!(given.arguments(&schema()).unwrap(), r#"{"text":"a","n":2}"#);
    assert!(!given.is_exact());
    for (whole, why) in [
        (
            "[1]",
            "invalid type: sequence, expected an object at line 1 column 0",
        ),
        (
            "{\"a\":1,\"a\":2}",
            "`a` stands there twice at line 1 column 13",
        ),
        ("{} x", "trailing characters at line 1 column 4"),
    ] {
        let problem = GivenValues::read(&[], Some(whole)).unwrap_err();
        assert_eq!(problem.parts().why.as_deref(), Some(why), "{whole}");
    }
}

#[test]
fn a_file_of_json_is_sent_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (good, bad) = (
        written("a.json", "\n{\"b\": 1.0}\n"),
        written("b.json", "x"),
    );
    let given = GivenValues::read(&[format!("any:=@{good}")], None).unwrap();
    assert_eq!(
        given.arguments(&Schema::nothing()).unwrap(),
        r#"{"any":{"b": 1.0}}"#
    );
    let problem = GivenValues::read(&[format!("any:=@{bad}")], None).unwrap_err();
    assert_eq!(problem.parts().what, "the file of `any` is not JSON");
    assert_eq!(problem.parts().place.as_deref(), Some(bad.as_str()));
}
