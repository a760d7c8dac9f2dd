//! A strict JSON parser for foreign bytes.
//!
//! Unlike serde_json's value it refuses duplicate keys, which would lose all but the last value, and never rounds a
//! number that has no 64-bit value. It takes RFC 8259 JSON in UTF-8, with an optional byte order mark.

use crate::value::Value;

/// Deepest nesting; recursion of the parser stays far from the stack's end.
const MAX_DEPTH: u32 = 128;

/// Objects with more keys than this have them compared through a hash set.
const LINEAR_KEYS: usize = 16;

/// Parses one document.
///
/// # Errors
/// What is wrong and at which byte.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|e| format!("invalid UTF-8 at byte {}", e.valid_up_to()))?;
    let mut parser = Parser {
        text,
        at: if text.starts_with('\u{feff}') { 3 } else { 0 },
        depth: 0,
    };
    let value = parser.value()?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.wrong("something after the end of the document")),
    }
}

/// Writes `text` as a JSON string, escaping only what JSON asks to escape.
pub(crate) fn write_text(text: &str, out: &mut String) {
    out.push('"');
    let mut plain = 0;
    for (i, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[plain..i]);
        plain = i + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            control => out.push_str(&format!("\\u{control:04x}")),
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

/// Reads `text` as a JSON number with a 64-bit value; `None` when it is no number or has no such value: an integer
/// beyond `i64`, a float that overflows, or one that is not zero and vanishes to zero.
pub(crate) fn number(text: &str) -> Option<Value> {
    if !is_number(text) {
        return None;
    }
    let is_integer = !text.contains(['.', 'e', 'E']);
    // The integer -0 would lose its sign.
    if is_integer && text != "-0" {
        return text.parse().ok().map(Value::Int);
    }
    let value: f64 = text.parse().ok()?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = mantissa.bytes().all(|b| !(b'1'..=b'9').contains(&b));
    (value.is_finite() && (is_zero || value != 0.0)).then_some(Value::Float(value))
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong(&self, what: &str) -> String {
        format!("{what} at byte {}", self.at)
    }

    /// "unexpected" is the end of the bytes in a body that was cut off.
    fn unexpected(&self, wanted: &str) -> String {
        match self.text[self.at..].chars().next() {
            None => format!(
                "the document ends at byte {}, where {wanted} should be",
                self.at
            ),
            Some(c) => format!(
                "`{}` at byte {}, where {wanted} should be",
                c.escape_debug(),
                self.at
            ),
        }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8, wanted: &str) -> Result<(), String> {
        if self.peek() != Some(byte) {
            return Err(self.unexpected(wanted));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::list),
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn nested(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<Value, String>,
    ) -> Result<Value, String> {
        if self.depth == MAX_DEPTH {
            return Err(self.wrong(&format!("more than {MAX_DEPTH} levels of nesting")));
        }
        self.depth += 1;
        self.at += 1;
        let value = inner(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Whether the list or object closed with `end` goes on; `first` before its first item.
    fn goes_on(&mut self, end: u8, first: bool) -> Result<bool, String> {
        self.skip_space();
        if self.peek() == Some(end) {
            self.at += 1;
            return Ok(false);
        }
        if !first {
            self.expect(
                b',',
                if end == b'}' {
                    "`,` or `}`"
                } else {
                    "`,` or `]`"
                },
            )?;
        }
        Ok(true)
    }

    fn list(&mut self) -> Result<Value, String> {
        let mut items = Vec::new();
        while self.goes_on(b']', items.is_empty())? {
            items.push(self.value()?);
        }
        Ok(Value::List(items))
    }

    fn object(&mut self) -> Result<Value, String> {
        let mut entries: Vec<(String, Value)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while self.goes_on(b'}', entries.is_empty())? {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in quotes"));
            }
            let start = self.at;
            let key = self.string()?;
            if entries.len() == LINEAR_KEYS {
                seen.extend(entries.iter().map(|(key, _)| key.clone()));
            }
            let again = if entries.len() < LINEAR_KEYS {
                entries.iter().any(|(known, _)| *known == key)
            } else {
                !seen.insert(key.clone())
            };
            if again {
                return Err(format!(
                    "key `{}` twice in one object at byte {start}",
                    key.escape_debug()
                ));
            }
            self.skip_space();
            self.expect(b':', "`:`")?;
            entries.push((key, self.value()?));
        }
        Ok(Value::Object(entries))
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, String> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
        ) {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        match number(text) {
            Some(value) => Ok(value),
            None if is_number(text) => Ok(Value::Text(text.to_owned())),
            None => {
                self.at = start;
                Err(self.unexpected("a number"))
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let plain = rest
                .iter()
                .position(|b| *b < 0x20 || *b == b'"' || *b == b'\\')
                .unwrap_or(rest.len());
            out.push_str(&self.text[self.at..self.at + plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                _ => return Err(self.unexpected("the rest of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        self.at += 1;
        let c = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.unexpected("an escape")),
        };
        self.at += 1;
        Ok(c)
    }

    /// `uXXXX`, twice for a character beyond 16 bits.
    fn unicode(&mut self) -> Result<char, String> {
        let start = self.at - 1;
        let first = self.hex4()?;
        let code = if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u") {
            self.at += 1;
            let second = self.hex4()?;
            if !(0xdc00..0xe000).contains(&second) {
                return Err(format!("half a surrogate pair at byte {start}"));
            }
            0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| format!("half a surrogate pair at byte {start}"))
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let start = self.at + 1;
        let digits = self
            .text
            .get(start..start + 4)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|d| u32::from_str_radix(d, 16).ok());
        match code {
            Some(code) => {
                self.at = start + 4;
                Ok(code)
            }
            None => Err(self.unexpected("four hexadecimal digits")),
        }
    }
}

/// Whether `text` is a JSON number, with or without a 64-bit value.
fn is_number(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mantissa_ok = match mantissa.split_once('.') {
        Some((whole, fraction)) => is_whole(whole) && is_digits(fraction),
        None => is_whole(mantissa),
    };
    mantissa_ok && is_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    is_digits(digits) && (digits == "0" || !digits.starts_with('0'))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        refused(r#""\ud800x""#, "half a surrogate pair at byte 1");
        refused(r#""\ud800\u0041""#, "half a surrogate pair at byte 1");
        refused(
            r#"{"a":1,"b":2,"a":3}"#,
            "key `a` twice in one object at byte 13",
        );
        refused(b"[\"\xff\"]", "invalid UTF-8 at byte 2");
        refused(
            "[".repeat(200),
            "more than 128 levels of nesting at byte 128",
        );
    }

    #[test]
    fn a_duplicate_among_many_keys_is_found() {
        let keys: Vec<String> = (0..40).chain([33]).map(|i| format!("\"k{i}\":0")).collect();
        let error = parse(format!("{{{}}}", keys.join(",")).as_bytes()).unwrap_err();
        assert!(error.starts_with("key `k33` twice"), "{error}");
    }

    proptest! {
        #[test]
        fn the_parser_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(parse(&bytes));
        }

        #[test]
        fn it_agrees_with_serde_json_on_json_like_text(text in r#"[\[\]{}:,"a0-9eE.+\- tnull\\]{0,24}"#) {
            let ours = parse(text.as_bytes());
            match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(_) => prop_assert!(ours.is_ok() || ours.as_ref().is_err_and(|e| e.contains("twice")), "{ours:?}"),
                // Numbers too large for a float are errors there and text here.
                Err(e) => prop_assert!(ours.is_err() || e.to_string().contains("out of range"), "{ours:?} {e}"),
            }
        }
    }
}
