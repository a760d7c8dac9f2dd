//! Texts and bodies with placeholders for parameters, and with secrets.

use std::collections::BTreeSet;

use feedline_schemas::config::{SecretRef, TextOrSecret};
use serde_json::{Map, Number, Value};

use crate::{context::Context, error::Error, param::Param};

/// Placeholder of a secret where the secret itself must not be.
const MASK: &str = "***";

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Plain(String),
    /// Name of a parameter.
    Hole(String),
}

impl Text {
    /// Parses `{name}` as placeholders of the parameters `known`, and `{{name}}` as `{name}`.
    ///
    /// # Errors
    /// A message about an unknown placeholder.
    pub(super) fn parse(text: &str, known: &[&str]) -> Result<Self, String> {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find('{') {
            plain += &rest[..at];
            rest = &rest[at..];
            if let Some(name) = name_in(&rest[1..])
                && rest[1..].starts_with('{')
                && rest[name.len() + 3..].starts_with('}')
            {
                plain += &format!("{{{name}}}");
                rest = &rest[name.len() + 4..];
                continue;
            }
            let Some(name) = name_in(rest) else {
                plain.push('{');
                rest = &rest[1..];
                continue;
            };
            if !known.contains(&name) {
                return Err(unknown(name, known));
            }
            if !plain.is_empty() {
                pieces.push(Piece::Plain(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Hole(name.to_owned()));
            rest = &rest[name.len() + 2..];
        }
        plain += rest;
        if !plain.is_empty() {
            pieces.push(Piece::Plain(plain));
        }
        Ok(Self(pieces))
    }

    /// Names of its placeholders.
    pub(super) fn holes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Hole(name) => Some(name.as_str()),
            Piece::Plain(_) => None,
        })
    }

    /// The text with the values of `params`; nothing for an absent one.
    pub(super) fn filled(&self, params: &[Param<'_>]) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Plain(text) => text.clone(),
            Piece::Hole(name) => {
                let found = params.iter().find(|param| param.name == name);
                found.map(|param| param.value.clone()).unwrap_or_default()
            }
        };
        self.0.iter().map(text).collect()
    }

    /// The text with the values of `params`, escaped for XML.
    ///
    /// # Errors
    /// The name of a parameter whose value XML cannot carry.
    pub(super) fn filled_in_xml(&self, params: &[Param<'_>]) -> Result<String, String> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Plain(text) => filled += text,
                Piece::Hole(name) => {
                    let found = params.iter().find(|param| param.name == name);
                    let value = found.map(|param| &*param.value).unwrap_or_default();
                    if value.chars().any(is_no_xml) {
                        return Err(name.clone());
                    }
                    filled += &escaped_for_xml(value);
                }
            }
        }
        Ok(filled)
    }

    /// The text with `marker` in each placeholder.
    pub(super) fn marked(&self, marker: &str) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Plain(text) => text.as_str(),
            Piece::Hole(_) => marker,
        });
        pieces.collect()
    }

    /// The text with the values of `params`; `None` for one placeholder alone whose parameter is
    /// absent.
    pub(super) fn filled_or_left_out(&self, params: &[Param<'_>]) -> Option<String> {
        match self.0.as_slice() {
            [Piece::Hole(name)] if params.iter().all(|param| param.name != name) => None,
            _ => Some(self.filled(params)),
        }
    }
}

/// The text of a value in an element or an attribute. A reader would change line ends and tabs that
/// are not escaped.
fn escaped_for_xml(value: &str) -> String {
    let escaped = quick_xml::escape::escape(value).replace('\r', "&#13;");
    escaped.replace('\n', "&#10;").replace('\t', "&#9;")
}

/// Returns true for a character that no document of XML 1.0 can have.
fn is_no_xml(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// The name in `{name}` at the beginning of `text`.
fn name_in(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('{')?;
    let name = &inner[..inner.find('}')?];
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.[]$".contains(c));
    is_name.then_some(name)
}

fn unknown(name: &str, known: &[&str]) -> String {
    let known = match known.is_empty() {
        true => "this source has no such parameters".to_owned(),
        false => format!("the parameters are `{}`", known.join("`, `")),
    };
    format!(
        "has the placeholder `{{{name}}}`, which names no parameter of `pagination`, `incremental`, `slices` or `for_each`: {known}; correct it, or write `{{{{{name}}}}}` to send it as it is"
    )
}

/// A JSON value with placeholders and secrets.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TemplateNode {
    Fixed(Value),
    Text(Text),
    Secret(String),
    List(Vec<Self>),
    Table(Vec<(String, Self)>),
}

impl TemplateNode {
    /// Reads `value` at `key` of the configuration. The secrets in it are added to `secrets`.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown placeholder, or a secret that cannot be found.
    pub(super) fn read(
        value: &Value,
        key: &str,
        known: &[&str],
        (context, secrets): (&Context, &mut Vec<String>),
    ) -> Result<Self, Error> {
        if let Some(reference) = reference(value) {
            return secret(&reference, key, (context, secrets)).map(Self::Secret);
        }
        Ok(match value {
            Value::String(text) => {
                Self::Text(Text::parse(text, known).map_err(|reason| Error::config(key, reason))?)
            }
            Value::Array(items) => {
                let mut all = Vec::new();
                for item in items {
                    all.push(Self::read(item, key, known, (context, &mut *secrets))?);
                }
                Self::List(all)
            }
            Value::Object(map) => {
                let mut all = Vec::new();
                for (name, value) in map {
                    let below = format!("{key}.{name}");
                    let node = Self::read(value, &below, known, (context, &mut *secrets))?;
                    all.push((name.clone(), node));
                }
                Self::Table(all)
            }
            other => Self::Fixed(other.clone()),
        })
    }

    /// Reads a field of a form; see [`TemplateNode::read`].
    ///
    /// # Errors
    /// As [`TemplateNode::read`].
    pub(super) fn of_field(
        value: &TextOrSecret,
        key: &str,
        known: &[&str],
        secrets: (&Context, &mut Vec<String>),
    ) -> Result<Self, Error> {
        match value {
            TextOrSecret::Secret(reference) => secret(reference, key, secrets).map(Self::Secret),
            TextOrSecret::Text(text) => Text::parse(text, known)
                .map(Self::Text)
                .map_err(|reason| Error::config(key, reason)),
        }
    }

    /// Adds the names of its placeholders to `holes`.
    pub(super) fn note_holes(&self, holes: &mut BTreeSet<String>) {
        match self {
            Self::Text(text) => holes.extend(text.holes().map(ToOwned::to_owned)),
            Self::List(items) => items.iter().for_each(|item| item.note_holes(holes)),
            Self::Table(fields) => fields.iter().for_each(|(_, node)| node.note_holes(holes)),
            Self::Fixed(_) | Self::Secret(_) => {}
        }
    }

    /// The value with `params` in its placeholders; `None` if it is left out. Secrets are
    /// masked unless `shows_secrets`.
    pub(super) fn filled(&self, params: &[Param<'_>], shows_secrets: bool) -> Option<Value> {
        Some(match self {
            Self::Fixed(value) => value.clone(),
            Self::Secret(secret) if shows_secrets => Value::from(secret.as_str()),
            Self::Secret(_) => Value::from(MASK),
            Self::Text(Text(pieces)) => match pieces.as_slice() {
                [Piece::Hole(name)] => {
                    let param = params.iter().find(|param| param.name == name)?;
                    number(param).map_or_else(|| Value::from(param.value.as_str()), Value::Number)
                }
                _ => Value::from(Text(pieces.clone()).filled(params)),
            },
            Self::List(items) => {
                let items = items.iter();
                items
                    .filter_map(|item| item.filled(params, shows_secrets))
                    .collect()
            }
            Self::Table(fields) => {
                let filled = fields.iter().filter_map(|(name, node)| {
                    Some((name.clone(), node.filled(params, shows_secrets)?))
                });
                Value::Object(filled.collect())
            }
        })
    }
}

/// The number that a numeric parameter is.
fn number(param: &Param<'_>) -> Option<Number> {
    let number = param.is_number.then(|| serde_json::from_str(&param.value));
    number?.ok()
}

/// Puts `param` at a path of `table`.
///
/// # Errors
/// A message if the body has something else in its way.
pub(super) fn put(table: &mut Map<String, Value>, param: &Param<'_>) -> Result<(), String> {
    let keys = feedline_schemas::record::split_path(param.name);
    let Some((last, above)) = keys.split_last() else {
        return Err("has an empty name of a parameter".to_owned());
    };
    let mut at = table;
    for key in above {
        let below = at
            .entry(key.clone())
            .or_insert_with(|| Value::Object(Map::new()));
        let kind = kind_of(below);
        at = below.as_object_mut().ok_or_else(|| {
            format!(
                "has {kind} at `{key}`, where the parameter `{}` needs a table",
                param.name
            )
        })?;
    }
    let value = match at.get(last) {
        Some(Value::Number(_)) => {
            let number: Option<Number> = serde_json::from_str(&param.value).ok();
            let number = number.map(Value::Number);
            number.ok_or_else(|| {
                format!(
                    "has a number at `{}`, and the value `{}` of that parameter is none; write a text there",
                    param.name,
                    feedline_readers::value::shorten(&param.value.escape_debug().to_string(), 60)
                )
            })?
        }
        Some(found @ (Value::Object(_) | Value::Array(_))) => {
            return Err(format!(
                "has {} at `{}`, the place of the parameter of that name; rename one of them",
                kind_of(found),
                param.name
            ));
        }
        _ => number(param).map_or_else(|| Value::from(param.value.as_str()), Value::Number),
    };
    at.insert(last.clone(), value);
    Ok(())
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// The reference to a secret that a table is.
pub(crate) fn reference(value: &Value) -> Option<SecretRef> {
    let fields = value.as_object()?;
    let is_reference = fields.contains_key("env") || fields.contains_key("file");
    let reference = is_reference.then(|| serde_json::from_value(value.clone()).ok());
    reference?
}

fn secret(
    reference: &SecretRef,
    key: &str,
    (context, secrets): (&Context, &mut Vec<String>),
) -> Result<String, Error> {
    let text = context.secrets.resolve(reference);
    let text = text.map_err(|reason| Error::config(key, reason))?;
    let secret = text.strip_prefix(&reference.prefix).unwrap_or(&text);
    if secret.is_empty() {
        return Err(Error::config(key, "is empty; set it to the secret"));
    }
    secrets.push(secret.to_owned());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::context;

    const KNOWN: &[&str] = &["since", "page[n]"];

    fn params() -> Vec<Param<'static>> {
        vec![
            Param::text("since", "2026 & more"),
            Param::number("page[n]", 3),
        ]
    }

    #[test]
    fn placeholders_are_filled_and_other_braces_stay() {
        let check = |text: &str, expected: Result<&str, &str>| match Text::parse(text, KNOWN) {
            Ok(parsed) => assert_eq!(Ok(parsed.filled(&params()).as_str()), expected),
            Err(reason) => assert!(reason.contains(expected.unwrap_err()), "{reason}"),
        };
        check("", Ok(""));
        check(
            "<a b=\"{since}\">{page[n]}</a>",
            Ok("<a b=\"2026 & more\">3</a>"),
        );
        check("{{since}} {{since}", Ok("{since} {2026 & more"));
        check(
            "{\"a\": {}, {1}, { since }",
            Ok("{\"a\": {}, {1}, { since }"),
        );
        check("é{since", Ok("é{since"));
        check(
            "{sinse}",
            Err("the placeholder `{sinse}`, which names no parameter"),
        );
        check("{sinse}", Err("write `{{sinse}}` to send it as it is"));
    }

    #[test]
    fn values_are_escaped_for_xml_and_control_characters_are_refused() {
        let parsed = Text::parse(
            "<a b=\"{since}\">{page[n]} &amp; {none}</a>",
            &["since", "page[n]", "none"],
        );
        let parsed = parsed.unwrap();
        let value = Param::text("since", "\"<&>'\r\n\t");
        let filled = parsed.filled_in_xml(&[value, Param::number("page[n]", 3)]);
        let expected = "<a b=\"&quot;&lt;&amp;&gt;&apos;&#13;&#10;&#9;\">3 &amp; </a>";
        assert_eq!(filled.as_deref(), Ok(expected));
        assert_eq!(parsed.marked("m"), "<a b=\"m\">m &amp; m</a>");
        let refused = parsed.filled_in_xml(&[Param::text("since", "a\u{1}")]);
        assert_eq!(refused, Err("since".to_owned()));
    }

    #[test]
    fn a_field_of_a_placeholder_alone_has_its_type_or_is_left_out() {
        let value = json!({
            "n": "{page[n]}", "deep": [{"from": "{since}", "text": "p{page[n]}"}],
            "key": {"env": "KEY", "prefix": "Bearer "}, "is": true
        });
        let mut secrets = Vec::new();
        let node =
            TemplateNode::read(&value, "body.json", KNOWN, (&context(), &mut secrets)).unwrap();
        assert_eq!(secrets, ["secret-KEY"]);
        let all = node.filled(&params(), true).unwrap();
        let expected = json!({
            "n": 3, "deep": [{"from": "2026 & more", "text": "p3"}], "key": "Bearer secret-KEY",
            "is": true
        });
        assert_eq!(all, expected);
        let none = node.filled(&[], false).unwrap();
        assert_eq!(
            none,
            json!({"deep": [{"text": "p"}], "key": "***", "is": true})
        );
        let mut holes = BTreeSet::new();
        node.note_holes(&mut holes);
        assert_eq!(holes.into_iter().collect::<Vec<_>>(), ["page[n]", "since"]);
    }

    #[test]
    fn parameters_stand_at_their_paths_with_the_type_of_what_was_there() {
        let check = |body: Value, param: Param<'_>, expected: Result<Value, &str>| {
            let Value::Object(mut table) = body else {
                panic!("a table");
            };
            match put(&mut table, &param) {
                Ok(()) => assert_eq!(Ok(Value::Object(table)), expected),
                Err(reason) => assert!(reason.contains(expected.unwrap_err()), "{reason}"),
            }
        };
        let text = Param::text("filter.since", "7");
        check(
            json!({}),
            text.clone(),
            Ok(json!({"filter": {"since": "7"}})),
        );
        check(
            json!({"filter": {"since": 0, "q": 1}}),
            text.clone(),
            Ok(json!({"filter": {"since": 7, "q": 1}})),
        );
        check(
            json!({"size": "x"}),
            Param::number("size", 9),
            Ok(json!({"size": 9})),
        );
        check(
            json!({"a.b": 1}),
            Param::text("a\\.b", "2"),
            Ok(json!({"a.b": 2})),
        );
        check(json!({"filter": "x"}), text, Err("has a text at `filter`"));
        check(
            json!({"after": 0}),
            Param::text("after", "abc"),
            Err("the value `abc` of that parameter is none"),
        );
        check(
            json!({"after": []}),
            Param::text("after", "abc"),
            Err("has a list at `after`"),
        );
    }
}
