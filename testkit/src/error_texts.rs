//! Texts of errors, compared with the files in `tests/snapshots/errors/`.

use std::{error::Error, fmt::Write as _, path::Path};

use crate::snapshot_file::compare;

/// Names the variants of an error type, by a match that does not compile when one is missing.
#[macro_export]
macro_rules! variants {
    ($type:ident: $($name:ident),+ $(,)?) => {{
        fn name(error: &$type) -> &'static str {
            match error {
                $($type::$name { .. } => stringify!($name)),+
            }
        }
        $crate::error_texts::Variants { name, all: &[$(stringify!($name)),+] }
    }};
}
pub use crate::variants;

/// Variants of an error type.
#[derive(Debug)]
pub struct Variants<E> {
    /// Name of an error's variant.
    pub name: fn(&E) -> &'static str,
    /// Names of all variants.
    pub all: &'static [&'static str],
}

/// Text of a snapshot.
#[derive(Debug, Default)]
pub struct Texts(String);

impl Texts {
    /// Appends the texts of `samples`, which must have every variant of their type.
    pub fn add_variants<E: Error>(&mut self, r#type: &str, variants: &Variants<E>, samples: &[E]) {
        for missing in variants.all {
            let found = samples
                .iter()
                .any(|sample| (variants.name)(sample) == *missing);
            assert!(found, "`{type}::{missing}` has no sample: add one");
        }
        for sample in samples {
            self.add(&format!("{type}::{}", (variants.name)(sample)), sample);
        }
    }

    /// Appends the text of an error and those of its causes under a title.
    pub fn add(&mut self, title: &str, error: &dyn Error) {
        writeln!(self.0, "{title}\n  {error}").unwrap();
        let mut cause = error.source();
        while let Some(error) = cause {
            writeln!(self.0, "  cause: {error}").unwrap();
            cause = error.source();
        }
        self.0.push('\n');
    }

    /// Compares the text with `errors/NAME.txt`.
    pub fn check(&self, root: &Path, name: &str) {
        compare(
            &root.join(format!("tests/snapshots/errors/{name}.txt")),
            self.0.trim_end(),
        );
    }
}
