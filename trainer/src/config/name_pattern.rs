//! Patterns of names, as the configuration has them: `*` matches any text.

use crate::error::{Error, config as wrong};

/// Returns true if `pattern` matches `name`; `*` matches any text.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    found(pattern, name).is_some()
}

/// New name of `name` if `pattern` matches it: `to`, with each `*` replaced by the text that the
/// `*` of `pattern` found.
pub(crate) fn rename(pattern: &str, to: &str, name: &str) -> Option<String> {
    let mut found = found(pattern, name)?.into_iter();
    let mut parts = to.split('*');
    let mut new = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        new.push_str(found.next().unwrap_or_default());
        new.push_str(part);
    }
    Some(new)
}

/// Texts that the `*` of `pattern` match in `name`, each as short as can be.
fn found<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
    let Some((start, rest)) = pattern.split_once('*') else {
        return (pattern == name).then(Vec::new);
    };
    let name = name.strip_prefix(start)?;
    let mut ends = name.char_indices().map(|(i, _)| i).chain([name.len()]);
    ends.find_map(|i| {
        let mut texts = found(rest, &name[i..])?;
        texts.insert(0, &name[..i]);
        Some(texts)
    })
}

/// Returns true if one of `patterns` matches `name`.
pub(crate) fn any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

/// Refuses a pattern of `train.<key>` that describes none of the `names` of what the model has.
///
/// # Errors
/// [`Error::Config`], with the names there are.
pub(crate) fn check<'a>(
    key: &str,
    what: &str,
    patterns: &[String],
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), Error> {
    let describes_none = |pattern: &&String| !names.clone().any(|name| matches(pattern, name));
    let Some(pattern) = patterns.iter().find(describes_none) else {
        return Ok(());
    };
    let names: Vec<String> = names.clone().map(|name| format!("`{name}`")).collect();
    let there = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    let reason = format!("`{pattern}` names no {what} of the model, which has {there}");
    Err(wrong(key, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_describe_names() {
        for (pattern, name, expected) in [
            ("layer.0.bias", "layer.0.bias", true),
            ("layer.0", "layer.0.bias", false),
            ("layer.0.*", "layer.0.bias", true),
            ("*.bias", "layer.0.bias", true),
            ("*", "", true),
            ("a*b*c", "a.b.b.c", true),
            ("a*b*c", "a.c", false),
            ("*é", "né", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn names_become_others() {
        let of = |pattern: &str, to: &str| rename(pattern, to, "h.3.mlp.w");
        assert_eq!(of("h.*.mlp.*", "block.*.up.*").unwrap(), "block.3.up.w");
        assert_eq!(of("h.*", "*").unwrap(), "3.mlp.w");
        assert_eq!(of("h.3.mlp.w", "x").unwrap(), "x");
        assert_eq!(of("g.*", "x"), None);
    }

    #[test]
    fn a_pattern_of_nothing_is_refused_with_the_names_there_are() {
        let refused = |names: &[&str]| {
            let patterns = ["b*".to_owned(), "x.*".to_owned()];
            check("freeze", "parameter", &patterns, names.iter().copied()).unwrap_err()
        };
        assert_eq!(
            refused(&["b.0", "c.0"]).to_string(),
            "cannot use `train.freeze`: `x.*` names no parameter of the model, which has `b.0`, `c.0`"
        );
        assert!(refused(&[]).to_string().ends_with("which has none"));
    }
}
