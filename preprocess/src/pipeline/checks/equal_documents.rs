//! Documents of several splits that are equal but for line ends and blanks at their ends.
//!
//! Duplicates are documents of equal bytes, so a copy with CRLF, or with one more line end, is no
//! duplicate and may be in another split. A language model reads both forms, and a build cannot
//! decide for one, so they are counted and never dropped.

use std::borrow::Cow;

use arrow::array::AsArray;
use datafusion::logical_expr::ident;
use feedline_schemas::{manifest::Split, report::Warning};
use futures::TryStreamExt;
use xxhash_rust::xxh3::xxh3_64;

use super::equal_rows::EqualRows;
use crate::{
    Error, operators::content_column::ContentKind, pipeline::prepare::Build, staging::Staged,
    warnings,
};

impl Build<'_> {
    /// Warns of documents of validation and test that equal a training document but for line ends and
    /// outer blanks. There are none after a search for near-duplicates: those are one document, or in
    /// one split. Parts of one document are not compared.
    pub(in crate::pipeline) async fn equal_documents(
        &self,
        staged: &Staged,
    ) -> Result<Option<Warning>, Error> {
        let payload = self.spec.payload.as_ref();
        let document = payload.filter(|payload| payload.kind == ContentKind::Text);
        let Some(document) = document else {
            return Ok(None);
        };
        if self.spec.near_dup.is_some() || self.cuts_documents() {
            return Ok(None);
        }
        let mut equal = EqualRows::new(Some(staged.total()));
        for split in Split::ALL {
            let documents = staged.frame(split)?;
            let documents = documents.select(vec![ident(&document.column)])?;
            let mut batches = documents.execute_stream().await?;
            while let Some(batch) = batches.try_next().await? {
                for text in batch.column(0).as_string::<i32>().iter().flatten() {
                    equal.add_hash(split, xxh3_64(plain_form(text).as_bytes()));
                }
            }
        }
        let (equal, is_sample) = equal.found();
        Ok(warnings::equal_documents(equal, is_sample))
    }
}

/// A document with LF at the end of each line, and without blanks at its beginning and end.
fn plain_form(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    match text.contains('\r') {
        true => Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_and_outer_blanks_make_no_difference_and_inner_blanks_do() {
        for text in ["a\nb c", "a\r\nb c\r\n", " \ta\rb c\n\n", "\u{a0}a\nb c"] {
            assert_eq!(plain_form(text), "a\nb c", "{text:?}");
        }
        assert_eq!(plain_form("a\n\nb  c\n"), "a\n\nb  c");
    }
}
