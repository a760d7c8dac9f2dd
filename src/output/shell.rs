//! Words of a command line that a person copies from a report.

use std::borrow::Cow;

/// Quotes `text` as one word for a POSIX shell, if it needs that.
pub(crate) fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', r"'\''"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_whatever_is_in_it() {
        assert_eq!(shell_word("data/homes-2.toml"), "data/homes-2.toml");
        assert_eq!(shell_word("größe.toml"), "größe.toml");
        assert_eq!(shell_word("mit leer/a b.toml"), "'mit leer/a b.toml'");
        assert_eq!(shell_word("it's $HOME.toml"), r"'it'\''s $HOME.toml'");
        assert_eq!(shell_word(""), "''");
    }
}
