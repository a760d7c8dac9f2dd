//! Canonical addresses of several pages: some systems name their front page on all of them, which
//! is true of none.

use std::collections::HashMap;

use feedline_readers::{record::Record, value::Value};
use feedline_schemas::{ids::Hash128, report::Warning};

/// Addresses that are remembered, about 50 MB at most.
const MOST_ADDRESSES: usize = 1 << 20;

/// Canonical addresses of the articles of a crawl, each with the page that named it first.
#[derive(Debug, Default)]
pub(super) struct Canonicals {
    first: HashMap<Hash128, Hash128>,
    /// Pages that named the address of another one.
    shared: u64,
}

impl Canonicals {
    /// Checks the `records` of the page fetched at `url`. Returns a warning if another page has the
    /// same canonical address.
    pub(super) fn look(&mut self, url: &str, records: &[Record]) -> Option<Warning> {
        let page = Hash128::of(url.as_bytes());
        let value = records.first()?.value()?;
        let Some(Value::Text(canonical)) = value.at("url") else {
            return None;
        };
        if self.first.len() >= MOST_ADDRESSES {
            return None;
        }
        let address = Hash128::of(canonical.as_bytes());
        if *self.first.entry(address).or_insert(page) == page {
            return None;
        }
        self.shared += 1;
        let pages = match self.shared {
            1 => "1 page names".to_owned(),
            many => format!("{many} pages name"),
        };
        let message = format!(
            "{pages} the canonical address of another page, such as `{url}`, which names `{canonical}`: with `key = [\"url\"]` a dataset reads one row of each address; set `key = [\"fetched_url\"]` to read them all"
        );
        Some(Warning::new("same_canonical", message).with_key("key"))
    }
}
