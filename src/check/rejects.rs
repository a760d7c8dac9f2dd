//! Rows that the contract of a source would reject, by the rows looked at.

use feedline_ingest::{READ_REJECTS, SourcePreview};
use feedline_schemas::{config::SourceConfig, report::Warning};

use super::checked_source::CheckedSource;
use crate::output::shortened;

impl CheckedSource {
    /// Reports more rejects than `contract.max_reject_fraction` allows: as an error for all rows of the
    /// source, or where all of many rows looked at are rejected, and as a warning where other rows may be
    /// better.
    pub(super) fn judge_rejects(&mut self, preview: &SourcePreview, config: &SourceConfig) {
        let limit = config.contract.max_reject_fraction.get();
        let all = preview.rows + preview.bad;
        let of_sample = (preview.bad, all);
        let of_page = (preview.rejected, preview.decided);
        let (rejected, rows) = match preview.is_all && preview.decided == preview.rows {
            true => (self.rejected, all),
            false if of_page.0 > 0 && preview.bad == 0 => of_page,
            false => of_sample,
        };
        if rejected == 0 || rejected as f64 <= limit * rows as f64 {
            return;
        }
        // A run checks the fraction of all that it ever read.
        let is_over = |of: u64| rejected as f64 > limit * (of + preview.landed) as f64;
        let is_error = match preview.is_all {
            true => is_over(all),
            false => rejected == rows && rows >= READ_REJECTS && is_over(rows),
        };
        let are = if rejected == 1 { "is" } else { "are" };
        let found = format!(
            "{rejected} of {rows} rows looked at {are} rejected, more than `contract.max_reject_fraction` = {limit} allows"
        );
        if is_error {
            let sample = self.rejected_sample.as_deref().unwrap_or_default();
            let sample = shortened(sample);
            let unseen = match preview.is_all {
                true => "",
                false => " (the other rows of the source were not looked at)",
            };
            self.error = Some(format!("{found}{unseen}, such as {sample}"));
        } else {
            let message = match preview.landed {
                0 => format!("{found}: a run stops if the other rows are no better"),
                before => format!(
                    "{found}: a run stops if the {before} records read before and the other rows are no better"
                ),
            };
            let warning = Warning::new("many_rejects", message);
            let warning = warning.with_key("contract.max_reject_fraction");
            self.warnings.push(warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    /// Returns true if a check fails, and the codes of its warnings.
    fn check(preview: &SourcePreview) -> (bool, Vec<String>) {
        let text =
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"a/*\"\n";
        let config = load("p.toml", text, &[]).unwrap().config.source.remove(0);
        let mut source = CheckedSource::not_asked(&config.name);
        source.take(preview, &config);
        let codes = source.warnings.into_iter().map(|warning| warning.code);
        (source.error.is_some(), codes.collect())
    }

    #[test]
    fn a_check_fails_only_by_all_rows_or_if_all_of_many_are_rejected() {
        let preview = |rows: u64, bad: u64, is_all: bool| SourcePreview {
            rows,
            bad,
            is_all,
            decided: rows,
            ..SourcePreview::default()
        };
        let doubt = || (false, vec!["many_rejects".to_owned()]);
        assert_eq!(check(&preview(0, 1, false)), doubt());
        assert_eq!(check(&preview(900, 300, false)), doubt());
        assert_eq!(check(&preview(0, 19, false)), doubt());
        assert_eq!(check(&preview(0, 20, false)), (true, vec![]));
        // The first page of an API.
        let page = |rejected: u64| SourcePreview {
            rejected,
            ..preview(20, 0, false)
        };
        assert_eq!(check(&page(20)), (true, vec![]));
        assert_eq!(check(&page(19)), doubt());
        assert_eq!(check(&preview(0, 1, true)), (true, vec![]));
        assert_eq!(check(&preview(30, 1, true)), (false, vec![]));
        // All rows were sampled, and the contract was asked about the first file alone.
        let first = SourcePreview {
            decided: 2,
            rejected: 2,
            ..preview(100, 0, true)
        };
        assert_eq!(check(&first), doubt());
        // Records that were read before count too.
        let landed = |landed: u64| SourcePreview {
            decided: 30,
            rejected: 30,
            landed,
            ..preview(60, 0, true)
        };
        assert_eq!(check(&landed(30)), (true, vec![]));
        assert_eq!(check(&landed(1_000)), doubt());
        let many = |landed: u64| SourcePreview {
            landed,
            ..preview(0, 1_000, false)
        };
        assert_eq!(check(&many(1_000)), (true, vec![]));
        assert_eq!(check(&many(9_000)), doubt());
    }
}
