use feedline_schemas::config::Bounded;
use proptest::prelude::*;

use super::*;

fn parse(bytes: &[u8]) -> Result<Value, String> {
    super::parse(bytes, &JsonConfig::default(), 0)
}

/// Checks the first fault: reason, path, detail; and the canonical form of the document.
fn check_fault(bytes: impl AsRef<[u8]>, fault: (&str, &str, &str), canonical: &str) {
    let value = parse(bytes.as_ref()).unwrap();
    let (path, found) = value.fault().unwrap();
    assert_eq!((found.reason, path.as_str(), found.detail.as_str()), fault);
    assert_eq!(value.canonical_and_faults(), (canonical.to_owned(), true));
}

fn check(text: &str, canonical: &str) {
    assert_eq!(
        parse(text.as_bytes()).map(|v| v.canonical()).as_deref(),
        Ok(canonical),
        "{text}"
    );
}

fn refused(bytes: impl AsRef<[u8]>, message: &str) {
    assert_eq!(parse(bytes.as_ref()).unwrap_err(), message);
}

#[test]
fn documents_parse_to_their_canonical_form() {
    check(
        " { \"b\" : [ 1 , 2.50, -3e2 ] ,\"a\":null }\n",
        r#"{"a":null,"b":[1,2.5,-300.0]}"#,
    );
    check("\u{feff}true", "true");
    check(
        r#""\u00e9\ud83d\ude00\/\b\n\u0000""#,
        "\"é😀/\\u0008\\n\\u0000\"",
    );
    check("[]", "[]");
    check("{}", "{}");
}

#[test]
fn numbers_are_never_rounded_in_silence() {
    check("9223372036854775807", "9223372036854775807");
    check("9223372036854775808", "\"9223372036854775808\"");
    check("1e400", "\"1e400\"");
    check("1e-400", "\"1e-400\"");
    check("0e-400", "0.0");
    check("-0", "-0.0");
    check("1.0", "1.0");
    check("1e16", "1e16");
    check("123456.789e-12", "1.23456789e-7");
    check("0.1", "0.1");
    check("1.10", "1.1");
    check("0.12345678901234567891", "0.12345678901234567891");
}

#[test]
fn a_tape_has_the_numbers_of_the_document_beside_the_canonical_form() {
    let document = r#"{"a":[1.10,0.12345678901234567891],"b":1E5,"c":1.5,"d":{"e":2.50}}"#;
    let tape = Reader::default().read(document.into(), &JsonConfig::default());
    let tape = tape.expect("it has no faults");
    assert_eq!(tape.value(0).written(), document);
    let mut walk = Walk::default();
    let mut out = String::new();
    walk.record(&tape, 0, 8, &mut |_| false, &mut out).unwrap();
    assert_eq!(
        out,
        r#"{"a":[1.1,0.12345678901234567891],"b":100000.0,"c":1.5,"d":{"e":2.5}}"#
    );
    let rewritten = walk.rewritten.clone();
    let leaves: Vec<usize> = rewritten.iter().map(|(leaf, _)| *leaf).collect();
    assert_eq!(leaves, [0, 1, 3]);
    let texts = rewritten.iter().map(|(_, node)| {
        let mut text = String::new();
        walk.write(&tape, *node, &mut text).unwrap();
        text
    });
    let texts: Vec<String> = texts.collect();
    assert_eq!(texts, ["[1.10,0.12345678901234567891]", "1E5", "2.50"]);
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    refused("", "the document ends at byte 0, where a value should be");
    refused(
        "{\"a\":1",
        "the document ends at byte 6, where `,` or `}` should be",
    );
    refused("[1,]", "`]` at byte 3, where a value should be");
    refused("[01]", "`0` at byte 1, where a number should be");
    refused("[1.]", "`1` at byte 1, where a number should be");
    refused("{} {}", "something after the end of the document at byte 3");
    refused("NaN", "`N` at byte 0, where a value should be");
    refused(
        "\"a\nb\"",
        "`\\n` at byte 2, where the rest of a string should be",
    );
    refused(
        "[".repeat(200),
        "the document ends at byte 200, where the end of a list or object should be",
    );
}

#[test]
fn fault_38_a_key_that_stands_twice_is_a_fault_with_all_its_values() {
    check_fault(
        r#"{"a":1,"b":2,"a":{"x":[3]}}"#,
        (
            "duplicate_key",
            "a",
            "key `a` twice in one object at byte 13",
        ),
        r#"{"a":1,"a":{"x":[3]},"b":2}"#,
    );
    check_fault(
        r#"{"l":[0,{"a":1,"\u0061":2,"a":3}]}"#,
        (
            "duplicate_key",
            "l.[1].a",
            "key `a` twice in one object at byte 26",
        ),
        r#"{"l":[0,{"a":1,"a":2,"a":3}]}"#,
    );
    let keys: Vec<String> = (0..40)
        .chain([33])
        .map(|i| format!("\"k{i}\":{i}"))
        .collect();
    let value = parse(format!("{{{}}}", keys.join(",")).as_bytes()).unwrap();
    assert!(
        value
            .fault()
            .unwrap()
            .1
            .detail
            .starts_with("key `k33` twice")
    );
}

#[test]
fn fault_38_the_last_value_of_a_key_can_be_settled_on() {
    let settle = |text: &str| {
        let mut told = Vec::new();
        let settled = parse(text.as_bytes())
            .unwrap()
            .settle("", &mut |path, fault| {
                told.push(format!("{path} {}", fault.lost.len()))
            });
        (
            settled
                .map(|v| v.canonical())
                .map_err(|(path, f)| format!("{path} {}", f.reason)),
            told,
        )
    };
    assert_eq!(
        settle(r#"{"a":1,"a":{"b":2,"b":3},"c.d":[{"e":1,"e":2,"e":3}]}"#),
        (
            Ok(r#"{"a":{"b":3},"c.d":[{"e":3}]}"#.into()),
            vec!["a 1".into(), "a.b 1".into(), r"c\.d.[0].e 2".into()]
        )
    );
    let (settled, _) = settle(r#"{"a":1,"a":2,"b":"\ud800"}"#);
    assert_eq!(settled, Err("b lone_surrogate".into()));
}

#[test]
fn fault_40_text_that_is_no_unicode_is_a_fault_of_its_value() {
    let surrogate = |place: &str| format!("half a surrogate pair at byte {place}");
    check_fault(
        r#"["\ud800x"]"#,
        ("lone_surrogate", "[0]", &surrogate("2")),
        "[\"\u{fffd}x\"]",
    );
    check_fault(
        r#"["\ud800\u0041"]"#,
        ("lone_surrogate", "[0]", &surrogate("2")),
        "[\"\u{fffd}A\"]",
    );
    check_fault(
        r#"{"\udc00":1}"#,
        ("lone_surrogate", "\u{fffd}", &surrogate("2")),
        "{\"\u{fffd}\":1}",
    );
    check_fault(
        b"[1,\"a\xffb\",\"\xc3\xa4\"]",
        ("invalid_utf8", "[1]", "invalid UTF-8 in the text at byte 5"),
        "[1,\"a\u{fffd}b\",\"\u{e4}\"]",
    );
    // A literal U+FFFD in the input is no flaw.
    check("[\"\u{fffd}\"]", "[\"\u{fffd}\"]");
    refused(b"[1,\xff]", "`\u{fffd}` at byte 3, where a value should be");
}

#[test]
fn fault_40_utf_16_is_read_by_its_mark_or_its_first_bytes() {
    let text = "{\"a\":[\"\u{e4}\u{1f600}\"]}";
    let with = |mark: bool, bytes: fn(u16) -> [u8; 2]| {
        let units = mark
            .then_some(0xfeff)
            .into_iter()
            .chain(text.encode_utf16());
        units.flat_map(bytes).collect::<Vec<u8>>()
    };
    for mark in [true, false] {
        for bytes in [with(mark, u16::to_le_bytes), with(mark, u16::to_be_bytes)] {
            assert_eq!(parse(&bytes).unwrap().canonical(), text);
        }
    }
    let mut broken = with(true, u16::to_le_bytes);
    broken.pop();
    assert_eq!(
        parse(&broken).unwrap_err(),
        "it begins like UTF-16LE but is invalid"
    );
}

fn check_bound(bounds: &JsonConfig, text: &str, expected: Result<&str, &str>) {
    let found = super::parse(text.as_bytes(), bounds, 7);
    let told = found.map(|value| match value.fault() {
        Some((path, fault)) => format!("{} {path} {}", fault.reason, fault.detail),
        None => value.canonical(),
    });
    assert_eq!(told.as_deref().map_err(String::as_str), expected, "{text}");
}

#[test]
fn fault_22_depth_width_length_and_items_are_bounded() {
    let bounds = JsonConfig {
        max_depth: Bounded::literal::<3>(),
        max_keys: Bounded::literal::<2>(),
        max_items: Bounded::literal::<4>(),
        max_text_bytes: Bounded::literal::<5>(),
    };
    check_bound(&bounds, "[[[1]]]", Ok("[[[1]]]"));
    let deep = "too_deep [0].[0].a more than 3 levels of nesting at byte 7 of line 7";
    check_bound(&bounds, r#"[[{"a":[["}]\"",1]],"b":2}]]"#, Ok(deep));
    check_bound(
        &bounds,
        r#"{"a":1,"b":2,"a":3}"#,
        Ok("duplicate_key a key `a` twice in one object at byte 13 of line 7"),
    );
    check_bound(
        &bounds,
        r#"[{"a":1,"b":2,"c":3,"d":4}]"#,
        Ok("too_wide [0] an object of more than 2 keys at byte 1 of line 7"),
    );
    check_bound(&bounds, r#"["abcde"]"#, Ok(r#"["abcde"]"#));
    check_bound(
        &bounds,
        r#"["abcd\u00e4"]"#,
        Ok("text_too_long [0] a text of 6 bytes, more than 5 B, at byte 1 of line 7"),
    );
    check_bound(&bounds, "[1,2,3,4]", Ok("[1,2,3,4]"));
    check_bound(
        &bounds,
        "[1,2,3,4,5]",
        Err("a list of more than `contract.json.max_items` = 4 items at byte 9"),
    );
}

#[test]
fn fault_22_a_million_levels_end_no_process() {
    let deep = format!(
        "[{{\"a\":{}1{}}},{{\"a\":2}}]",
        "[".repeat(1_000_000),
        "]".repeat(1_000_000)
    );
    let value = parse(deep.as_bytes()).unwrap();
    let (path, fault) = value.fault().unwrap();
    assert_eq!(
        (fault.reason, path.matches("[0]").count()),
        ("too_deep", 127)
    );
    assert!(value.canonical().ends_with("{\"a\":2}]"));
}

proptest! {
    #[test]
    fn the_parser_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        drop(parse(&bytes));
    }

    #[test]
    fn a_value_of_a_tape_is_that_of_its_tree(
        number in "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,4})?([eE][+-]?[0-9]{1,3})?",
        text in "[a-z\\\\u00e4\"]{0,8}",
    ) {
        let text = serde_json::Value::from(text);
        let document = format!("[{number},{text},null,true,false,[],{{}}]");
        let tape = Reader::default().read(document.into(), &JsonConfig::default());
        let tape = tape.expect("it has no faults");
        for place in tape.below(0) {
            let value = tape.value(place);
            prop_assert_eq!(tape.view(place), value.view());
            prop_assert_eq!(tape.size(place), value.size());
        }
    }

    #[test]
    fn it_agrees_with_serde_json_on_json_like_text(text in r#"[\[\]{}:,"a0-9eE.+\- tnull\\]{0,24}"#) {
        let ours = parse(text.as_bytes());
        match serde_json::from_str::<serde_json::Value>(&text) {
            Ok(_) => prop_assert!(ours.is_ok(), "{ours:?}"),
            // Numbers too large for a float are errors there and text here.
            Err(e) => prop_assert!(ours.is_err() || e.to_string().contains("out of range"), "{ours:?} {e}"),
        }
    }
}
