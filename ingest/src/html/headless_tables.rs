//! Tables of pages that have no header, and whose rows do not land.

use feedline_schemas::{count::counted, report::Warning};

/// Tables of a crawl without a row of `th` cells and without a `thead`.
#[derive(Debug, Default)]
pub(super) struct HeadlessTables {
    count: u64,
    /// The first page that has one.
    first: Option<String>,
}

impl HeadlessTables {
    /// Adds those of the page at `url`. Returns the warning about all of this run so far.
    pub(super) fn add(&mut self, url: &str, count: u64) -> Option<Warning> {
        if count == 0 {
            return None;
        }
        self.count += count;
        let first = self.first.get_or_insert_with(|| url.to_owned());
        let message = format!(
            "{} without a header (a first row of `th` cells, or a `thead`) did not land, first on `{first}`, as counted in one run: set `page.extract = \"rows\"` with `page.rows`, such as \"table tr\", and `page.columns`, such as \"td:nth-child(1)\", to read their rows",
            counted(self.count, "table")
        );
        Some(Warning::new("tables_without_header", message).with_key("page.extract"))
    }

    /// Number of them.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }
}
