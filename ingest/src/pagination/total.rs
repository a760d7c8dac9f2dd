//! Whether all records have come.

use feedline_schemas::commit::PageRun;

use super::Paginator;
use crate::{error::Error, http::redacted};

impl Paginator {
    /// Whether the API has more records than it gives, by its own word.
    pub(crate) fn is_beyond_cap(&self, total: Option<u64>) -> bool {
        self.config
            .max_records
            .zip(total)
            .is_some_and(|(most, total)| total > most)
    }

    /// Refuses a run of pages that reaches the number at which the API stops.
    ///
    /// # Errors
    /// [`Error::Incomplete`].
    pub(super) fn check_cap(&self, run: &PageRun, total: Option<u64>) -> Result<(), Error> {
        match self.config.max_records {
            Some(most) if run.records >= most && total != Some(run.records) => {
                let total = total
                    .map(|total| format!(" of {total}"))
                    .unwrap_or_default();
                let reason = format!(
                    "{}{total} records have come, and at `pagination.max_records` = {most} the API stops; ask for less at a time: by `slices` if the API takes a range, by `for_each`, or by `params` in sources of their own",
                    run.records
                );
                let url = redacted(&self.urls.base);
                Err(Error::Incomplete { url, reason })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_total(&self, run: &PageRun, total: Option<u64>) -> Result<(), Error> {
        let config = &self.config;
        let is_asked = config.total_path.is_some() || config.total_header.is_some();
        let received = run.records;
        let url = redacted(&self.urls.base);
        match total {
            Some(total) if total != received && config.strict_total => Err(self.wrong(format!(
                "{received} records have come, and it says that there are {total}; run again, or remove `pagination.strict_total` if records come and go while they are read"
            ))),
            Some(total) if total != received => {
                tracing::warn!(url, received, total, "the total is not what has come");
                Ok(())
            }
            None if is_asked && config.strict_total => Err(self.wrong(
                "the last page tells no total; check `pagination.total_path` and `pagination.total_header`"
                    .into(),
            )),
            None if is_asked => {
                tracing::warn!(url, received, "the last page tells no total");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
