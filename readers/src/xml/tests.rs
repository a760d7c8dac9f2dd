//! Documents, damaged and hostile ones too.

use encoding_rs::{SHIFT_JIS, WINDOWS_1252};
use feedline_schemas::config::Bounded;
use proptest::prelude::*;

use super::*;

fn read_within(bytes: &[u8], content_type: &str, bounds: &JsonConfig) -> Result<Value, String> {
    let rules = XmlRules {
        bounds,
        notices: &Notices::default(),
    };
    parse(bytes, content_type, rules)
}

fn read(text: &str) -> Result<Value, String> {
    read_within(text.as_bytes(), "", &JsonConfig::default())
}

fn check(text: &str, expected: &str) {
    let found = read(text).map(|value| value.canonical());
    assert_eq!(found.as_deref(), Ok(expected), "{text}");
}

fn refused(text: &str, part: &str) {
    let error = read(text).unwrap_err();
    assert!(error.contains(part), "{text}: {error}");
}

#[test]
fn elements_become_objects_lists_texts_and_nulls() {
    check("<a>1</a>", r#"{"a":"1"}"#);
    check("<a/>", r#"{"a":null}"#);
    check("<a>  </a>", r#"{"a":null}"#);
    check("<a b='1' c=''/>", r#"{"a":{"@b":"1","@c":null}}"#);
    check("<a b='1'> x </a>", r##"{"a":{"#text":"x","@b":"1"}}"##);
    check(
        "<a><b>1</b><c/><b>2</b></a>",
        r#"{"a":{"b":["1","2"],"c":null}}"#,
    );
    check("<a>x<b/>y</a>", r##"{"a":{"#text":"xy","b":null}}"##);
    check(
        "<x:a xmlns:x='urn:x' xmlns='urn:y'><x:b x:c='1'/></x:a>",
        r#"{"x:a":{"x:b":{"@x:c":"1"}}}"#,
    );
    check(
        "<a xmlns:xsi='u'><b xsi:nil='true'/><c xsi:nil='false'/></a>",
        r#"{"a":{"b":null,"c":{"@xsi:nil":"false"}}}"#,
    );
    check(
        "<a xmlns:i='u'><b i:nil='true'/></a>",
        r#"{"a":{"b":null}}"#,
    );
    check("<htmlReport>1</htmlReport>", r#"{"htmlReport":"1"}"#);
}

#[test]
fn texts_are_those_of_entities_sections_and_line_ends() {
    check(
        "\u{feff}<?xml version='1.0'?>\n<!-- c --><?p i?><a>&lt;&#233;&#x41;&amp;<![CDATA[<b>&amp;]]>\r\nz<!-- c --></a>\n<!-- c -->",
        r#"{"a":"<éA&<b>&amp;\nz"}"#,
    );
    check("<a b='&quot;&#10;&gt;'/>", r#"{"a":{"@b":"\"\n>"}}"#);
}

#[test]
fn texts_are_cells_so_that_columns_decide_their_types() {
    let value = read("<a>07</a>").unwrap();
    assert_eq!(value.at("a"), Some(&Value::Cell("07".into())));
}

#[test]
fn what_is_no_document_says_why() {
    refused("", "it is empty");
    refused(" \n", "it is empty");
    refused("<!-- only -->", "it has no element");
    refused("text", "text at byte 0 is outside of the root element");
    refused("<a/>text", "outside of the root element");
    refused("<a/><b/>", "a second root element, `b`");
    refused("<a><b></a>", "not well-formed XML");
    refused("</a>", "not well-formed XML");
    refused("<a b='1' b='2'/>", "the attribute `b` twice");
    refused("<a b=1/>", "not well-formed XML");
    refused("<a>&nbsp;</a>", "the entity `&nbsp;`");
    refused("<a b='&nbsp;'/>", "not well-formed XML");
    refused("<a>&#0;</a>", "not well-formed XML");
    refused("<a>1 & 2</a>", "not well-formed XML");
    refused("<!DOCTYPE html><html><body/></html>", "it is an HTML page");
    refused("<HTML><p>Bad gateway</p></HTML>", "it is an HTML page");
    refused("<?xml version='1.0'?><html/>", "it is an HTML page");
    refused("<html\nlang='de'/>", "it is an HTML page");
}

#[test]
fn a_truncated_document_is_one_clear_error() {
    let text = "<?xml version='1.0'?><a b='1'><!-- c --><c>x &amp; y</c><d><![CDATA[z]]></d></a>";
    assert!(read(text).is_ok());
    for end in 0..text.len() {
        let error = read(&text[..end]).unwrap_err();
        let is_clear = ["ends early", "not well-formed", "no element", "is empty"]
            .iter()
            .any(|part| error.contains(part));
        assert!(is_clear, "{end}: {error}");
    }
}

#[test]
fn entities_of_a_document_and_of_other_files_are_refused() {
    let lol = "<!DOCTYPE lolz [<!ENTITY a 'lol'><!ENTITY b '&a;&a;&a;'>]><lolz>&b;</lolz>";
    refused(lol, "it has a DTD of its own");
    let file = "<!DOCTYPE a [<!ENTITY f SYSTEM 'file:///etc/passwd'>]><a>&f;</a>";
    refused(file, "it has a DTD of its own");
    let parameter = "<!DOCTYPE a [<!ENTITY % p SYSTEM 'http://h/'> %p;]><a/>";
    refused(parameter, "it has a DTD of its own");
    refused("<a/><!DOCTYPE a>", "after its first element");
    refused(
        "<!DOCTYPE a SYSTEM 'http://h/a.dtd'><a>&f;</a>",
        "the entity `&f;`",
    );
}

#[test]
fn a_dtd_elsewhere_is_not_read_and_reported() {
    let notices = Notices::default();
    let rules = XmlRules {
        bounds: &JsonConfig::default(),
        notices: &notices,
    };
    let text = "<!DOCTYPE a PUBLIC '-//N//DTD a//EN' 'http://h.invalid/a.dtd'><a>1</a>";
    assert!(parse(text.as_bytes(), "", rules).is_ok());
    let codes: Vec<String> = notices.all().into_iter().map(|w| w.code).collect();
    assert_eq!(codes, ["xml_dtd"]);
}

#[test]
fn values_beyond_the_bounds_are_faults_in_their_place() {
    let bounds = JsonConfig {
        max_depth: Bounded::literal::<3>(),
        max_keys: Bounded::literal::<2>(),
        max_items: Bounded::literal::<3>(),
        max_text_bytes: Bounded::literal::<5>(),
    };
    let fault = |text: &str| {
        let value = read_within(text.as_bytes(), "", &bounds).unwrap();
        let (path, fault) = value.fault().unwrap();
        (path, fault.reason, fault.kept.canonical())
    };
    let deep = fault("<a><b><c><d>1</d></c></b></a>");
    assert_eq!(deep, ("a.b.c.d".into(), "too_deep", "\"<d>1</d>\"".into()));
    let empty = fault("<a><b><c><d/></c></b></a>");
    assert_eq!(empty, ("a.b.c.d".into(), "too_deep", "\"<d/>\"".into()));
    let wide = fault("<a><b/><c/><d/><e/></a>");
    let kept = r#"{"b":null,"c":null}"#;
    assert_eq!(wide, ("a".into(), "too_wide", kept.into()));
    let long = fault("<a><b>123456</b></a>");
    assert_eq!(long, ("a.b".into(), "text_too_long", "\"123456\"".into()));
    let error = read_within(b"<a><b/><b/><b/><b/></a>", "", &bounds).unwrap_err();
    assert!(
        error.contains("more than `contract.json.max_items` = 3"),
        "{error}"
    );
}

#[test]
fn hostile_documents_take_time_in_proportion_to_their_size() {
    let deep = "<a>".repeat(200_000) + &"</a>".repeat(200_000);
    let value = read(&deep).unwrap();
    assert_eq!(value.fault().unwrap().1.reason, "too_deep");
    let mut wide = "<a".to_owned();
    for i in 0..100_001 {
        wide += &format!(" b{i}=''");
    }
    assert_eq!(
        read(&(wide + "/>")).unwrap().fault().unwrap().1.reason,
        "too_wide"
    );
    let mut children = "<a>".to_owned();
    for i in 0..50_000 {
        children += &format!("<b{i}/>");
    }
    assert!(read(&(children + "</a>")).unwrap().fault().is_none());
}

#[test]
fn the_mark_then_the_header_then_the_declaration_decide_the_encoding() {
    let page = |label: &str| format!("<?xml version=\"1.0\" encoding=\"{label}\"?><a>Grün</a>");
    let check = |bytes: &[u8], content_type: &str| {
        let value = read_within(bytes, content_type, &JsonConfig::default()).unwrap();
        assert_eq!(
            value.at("a"),
            Some(&Value::Cell("Grün".into())),
            "{content_type}"
        );
    };
    let latin = |text: &str| WINDOWS_1252.encode(text).0.into_owned();
    check("<a>Grün</a>".as_bytes(), "");
    check(&latin(&page("ISO-8859-1")), "application/xml");
    check(&latin("<a>Grün</a>"), "text/xml; charset=iso-8859-1");
    check(&latin(&page("ISO-8859-1")), "text/xml; charset=UTF-8");
    check(page("UTF-8").as_bytes(), "text/xml; charset=utf-8");
    let marked = [b"\xef\xbb\xbf".as_slice(), page("ISO-8859-1").as_bytes()].concat();
    check(&marked, "");
    for is_little in [true, false] {
        for mark in ["\u{feff}", ""] {
            let text = format!("{mark}{}", page("UTF-16"));
            let units = text.encode_utf16();
            let bytes: Vec<u8> = units
                .flat_map(|unit| match is_little {
                    true => unit.to_le_bytes(),
                    false => unit.to_be_bytes(),
                })
                .collect();
            check(&bytes, "");
        }
    }
    let japanese = "<?xml version='1.0' encoding='Shift_JIS'?><a>表示</a>";
    let bytes = SHIFT_JIS.encode(japanese).0;
    let value = read_within(&bytes, "", &JsonConfig::default()).unwrap();
    assert_eq!(value.at("a"), Some(&Value::Cell("表示".into())));
}

#[test]
fn bytes_of_another_encoding_are_an_error_and_a_decision_is_reported() {
    let error = read_within(b"<a>\xff</a>", "", &JsonConfig::default()).unwrap_err();
    assert!(error.contains("its bytes are not UTF-8"), "{error}");
    refused(
        "<?xml version='1.0' encoding='klingon'?><a/>",
        "`klingon`, which is unknown",
    );
    let notices = Notices::default();
    let rules = XmlRules {
        bounds: &JsonConfig::default(),
        notices: &notices,
    };
    let text = "<?xml version='1.0' encoding='iso-8859-1'?><a>\u{e9}</a>";
    let value = parse(text.as_bytes(), "text/xml; charset=utf-8", rules).unwrap();
    assert_eq!(value.at("a"), Some(&Value::Cell("\u{e9}".into())));
    let found = notices.all();
    assert_eq!(found[0].code, "xml_encoding");
    assert!(
        found[0]
            .message
            .contains("from UTF-8 and not from windows-1252"),
        "{}",
        found[0].message
    );
}

#[test]
fn a_body_that_is_sent_must_be_a_document_in_utf_8() {
    assert_eq!(
        super::check("<?xml version='1.0' encoding='UTF-8'?><a b='{c}'>{d}</a>"),
        Ok(())
    );
    assert!(super::check("<a>").unwrap_err().contains("ends early"));
    let latin = super::check("<?xml version='1.0' encoding='latin1'?><a/>").unwrap_err();
    assert!(latin.contains("sent in UTF-8"), "{latin}");
}

#[test]
fn a_declaration_of_utf_8_that_fits_decides_and_only_another_text_is_reported() {
    let check = |text: &str, content_type: &str, is_reported: bool| {
        let notices = Notices::default();
        let rules = XmlRules {
            bounds: &JsonConfig::default(),
            notices: &notices,
        };
        let page = format!("<?xml version='1.0' encoding='UTF-8'?><a>{text}</a>");
        let value = parse(page.as_bytes(), content_type, rules).unwrap();
        assert_eq!(value.at("a"), Some(&Value::Cell(text.into())));
        assert_eq!(!notices.all().is_empty(), is_reported, "{text}");
    };
    check("Grün", "text/xml; charset=iso-8859-1", true);
    check("plain", "text/xml; charset=iso-8859-1", false);
    check("Grün", "text/xml; charset=utf-8", false);
}

#[test]
fn values_can_be_escaped_in_texts_and_attributes_only() {
    let check = |text: &str, expected: bool| {
        assert_eq!(is_outside_of_values(text, "place"), expected, "{text}");
    };
    check("<a b='place'>place &amp; <c d=\"xplace\"/>place</a>", false);
    for text in [
        "<!-- place --><a/>",
        "<a><![CDATA[ place ]]></a>",
        "<a><?p place?></a>",
        "<?xml version='1.0' standalone='place'?><a/>",
        "<!DOCTYPE place><a/>",
        "<place/>",
        "<a:place></a:place>",
        "<a place='1'/>",
        "<a>&place;</a>",
    ] {
        check(text, true);
    }
}

/// An element as it is written, and its value.
#[derive(Clone, Debug)]
struct Element {
    text: String,
    value: Value,
}

fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

/// Texts that XML can carry, without white space around them.
fn any_text() -> impl Strategy<Value = String> {
    "[ -~é表\\t]{0,12}".prop_map(|text| text.trim().to_owned())
}

fn cell(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => Value::Cell(text.to_owned()),
    }
}

/// Elements called `name`, with all that an element can have.
fn any_element(name: &'static str) -> impl Strategy<Value = Element> {
    let leaf = any_text().prop_map(move |text| Element {
        text: format!("<{name}>{}</{name}>", escaped(&text)),
        value: cell(&text),
    });
    leaf.prop_recursive(4, 32, 4, move |inner| {
        let attribute = proptest::option::of(any_text());
        let children = proptest::collection::vec(inner, 0..4);
        (attribute, children, any_text()).prop_map(move |(attribute, children, text)| {
            let mut written = format!("<{name}");
            let mut fields = Vec::new();
            if let Some(value) = attribute {
                written += &format!(" at='{}'", escaped(&value));
                fields.push(("@at".to_owned(), cell(&value)));
            }
            written += ">";
            let mut values: Vec<Value> = Vec::new();
            for child in children {
                written += &child.text;
                values.push(child.value);
            }
            match values.len() {
                0 => {}
                1 => fields.push((name.to_owned(), values.remove(0))),
                _ => fields.push((name.to_owned(), Value::List(values))),
            }
            written += &format!("{}</{name}>", escaped(&text));
            let value = match (fields.is_empty(), cell(&text)) {
                (true, value) => value,
                (false, _) if text.is_empty() => Value::Object(fields),
                (false, value) => {
                    fields.push((TEXT.to_owned(), value));
                    Value::Object(fields)
                }
            };
            Element {
                text: written,
                value,
            }
        })
    })
}

proptest! {
    #[test]
    fn any_document_is_read_as_it_was_written(element in any_element("e")) {
        let value = read(&element.text).unwrap();
        prop_assert_eq!(value, Value::Object(vec![("e".to_owned(), element.value)]));
    }

    #[test]
    fn a_part_of_a_document_is_never_a_document(
        element in any_element("e"),
        at in any::<proptest::sample::Index>(),
    ) {
        let end = element.text.floor_char_boundary(at.index(element.text.len()));
        prop_assert!(read(&element.text[..end]).is_err());
    }

    #[test]
    fn damaged_documents_are_read_or_refused(
        element in any_element("e"),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = element.text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        drop(read_within(&bytes, "", &JsonConfig::default()));
    }

    #[test]
    fn foreign_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..64),
        text in "[<>/a='\"&;!?\\[\\]\\-#x0 \u{feff}]{0,64}",
    ) {
        drop(read_within(&bytes, "", &JsonConfig::default()));
        drop(read_within(text.as_bytes(), "text/xml; charset=utf-16", &JsonConfig::default()));
    }
}
