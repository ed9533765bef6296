//! Values as people type them.

use serde_json::{Value, json};

use super::*;

fn schema() -> Value {
    json!({
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
    })
}

fn arguments(words: &[&str]) -> Result<Value, String> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let given = ArgumentValues::parse(&words, None).map_err(|p| p.parts().message.clone())?;
    let bytes = given
        .to_json(Schema::new(&schema()))
        .map_err(|p| p.parts().message.clone())?;
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
    let given = ArgumentValues::parse(&["x=12345678901234567890.10".to_owned()], None).unwrap();
    let bytes = given.to_json(Schema::new(&schema())).unwrap();
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
        (vec!["text=a", "text=b"],   "`text` is given 2 times and is not a list"),
        (vec!["any:={"],             "the value of `any` is not JSON"),
        (vec!["nothing"],            "`nothing` is not a value"),
        (vec!["=x"],                 "`=x` has no name before `=`"),
        (vec!["text=@no/such/file"], "the file of `text` cannot be read"),
    ];
    for (words, what) in table {
        assert_eq!(arguments(&words), Err(what.to_owned()), "{words:?}");
    }
}

type Complaint = (String, Option<String>);

/// Notes, or a complaint and its hint.
type Checked = Result<&'static [&'static str], (&'static str, &'static str)>;

fn check(words: &[&str], schema: &Value) -> Result<Vec<String>, Complaint> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let given = ArgumentValues::parse(&words, None).unwrap();
    let told = |p: Problem| (p.parts().message.clone(), p.parts().hint.clone());
    given.check_names("pay", Schema::new(schema)).map_err(told)
}

#[test]
fn names_are_checked_before_anything_is_sent() {
    let open = json!({
        "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}},
        "required": ["amount"],
    });
    let closed = json!({
        "properties": {"amount": {"type": "integer"}}, "additionalProperties": false,
    });
    let no = "`pay` has no argument `amuont`";
    let near = "did you mean `amount`? If not, write 'amuont:=JSON', which is sent unchanged";
    #[rustfmt::skip]
    let table: [(&Value, &[&str], Checked); 8] = [
        (&open,        &["amount=1", "to=a", "free=1"], Ok(&["`pay` has no argument `free`; it is sent anyway"])),
        (&open,        &[],                             Err(("`pay` needs `amount`", "add `amount=1`"))),
        (&open,        &["amuont=1"],                   Err((no, near))),
        (&open,        &["amount=1", "amuont=2"],       Err((no, near))),
        (&open,        &["amount=1", "tp:=1"],          Ok(&["`pay` has no argument `tp`; it is sent anyway"])),
        (&closed,      &["amuont=1"],                   Err((no, "did you mean `amount`?"))),
        (&closed,      &["zzz=1"],                      Err(("`pay` has no argument `zzz`", "it takes `amount`"))),
        (&Value::Null, &["free=1"],                     Ok(&[])),
    ];
    for (schema, words, expected) in table {
        let expected = expected.map(|notes| notes.iter().map(|&note| note.to_owned()).collect());
        let expected = expected.map_err(|(what, hint)| (what.to_owned(), Some(hint.to_owned())));
        assert_eq!(check(words, schema), expected, "{words:?}");
    }
}

/// What zod makes of `.default()` is required and has a default: the server fills it in.
#[test]
fn what_has_a_default_need_not_be_given() {
    let schema = json!({
        "properties": {
            "scale": {"enum": ["css", "device"], "default": "css"},
            "size": {"$ref": "#/$defs/Size"},
            "url": {"type": "string"},
        },
        "required": ["scale", "size", "url"],
        "$defs": {"Size": {"type": "integer", "default": 3}},
    });
    assert_eq!(Schema::new(&schema).required(), ["url"]);
    assert_eq!(check(&["url=a"], &schema).unwrap(), Vec::<String>::new());
    assert!(check(&["scale=css"], &schema).is_err());
}

#[test]
fn all_values_can_be_given_as_one_object() {
    let words = ["n=2".to_owned()];
    let given = ArgumentValues::parse(&words, Some(r#"{"text": "a", "n": 1}"#)).unwrap();
    assert_eq!(
        given.to_json(Schema::new(&schema())).unwrap(),
        r#"{"text":"a","n":2}"#
    );
    assert!(!given.is_json_only());
    for (whole, why) in [
        (
            "[1]",
            "invalid type: sequence, expected an object at line 1 column 0",
        ),
        (
            "{\"a\":1,\"a\":2}",
            "`a` is there twice at line 1 column 13",
        ),
        ("{} x", "trailing characters at line 1 column 4"),
    ] {
        let problem = ArgumentValues::parse(&[], Some(whole)).unwrap_err();
        assert_eq!(problem.parts().cause.as_deref(), Some(why), "{whole}");
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
    let given = ArgumentValues::parse(&[format!("any:=@{good}")], None).unwrap();
    assert_eq!(
        given.to_json(Schema::UNCONSTRAINED).unwrap(),
        r#"{"any":{"b": 1.0}}"#
    );
    let problem = ArgumentValues::parse(&[format!("any:=@{bad}")], None).unwrap_err();
    assert_eq!(problem.parts().message, "the file of `any` is not JSON");
    assert_eq!(problem.parts().location.as_deref(), Some(bad.as_str()));
}
