//! Whether all records have come.

use feedline_schemas::commit::PageRun;

use super::Paginator;
use crate::{error::Error, http::redacted};

impl Paginator {
    /// Refuses a run of pages that reaches the number at which the API stops.
    pub(super) fn check_cap(&self, run: &PageRun, total: Option<u64>) -> Result<(), Error> {
        match self.config.max_records {
            Some(most) if run.records >= most && total != Some(run.records) => {
                let total = total
                    .map(|total| format!(" of {total}"))
                    .unwrap_or_default();
                Err(self.wrong(format!(
                    "incomplete: {}{total} records have come, and at `pagination.max_records` = {most} the API stops; what comes after them cannot be had this way; ask for less at a time by `params`, in sources of their own, or by `incremental`",
                    run.records
                )))
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
