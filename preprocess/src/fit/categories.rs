//! Known values of categories, and the handling of all others.

use feedline_schemas::{
    config::{StepConfig, UnknownCategories},
    transform::{CategoryEncoding, FittedCategories, FittedFrequency},
};

use super::{Fit, STEP, unzip};
use crate::Error;

/// Ids that hashed values share unless the step says otherwise.
pub(crate) const BUCKETS: u32 = 64;

/// Known values of a category unless the step says otherwise: fewer where each makes the row longer.
pub(crate) const fn most_values(encoding: CategoryEncoding) -> u32 {
    match encoding {
        CategoryEncoding::OneHot | CategoryEncoding::Ordinal | CategoryEncoding::Hash => 100,
        CategoryEncoding::Frequency | CategoryEncoding::Target => 10_000,
    }
}

impl Fit {
    pub(super) async fn categories(
        &self,
        step: &StepConfig,
    ) -> Result<Vec<FittedCategories>, Error> {
        let encoding = step.encoding.unwrap_or_default();
        let mut fitted = Vec::with_capacity(step.columns.len());
        for name in &step.columns {
            fitted.push(match encoding {
                CategoryEncoding::Hash => FittedCategories {
                    buckets: Some(step.buckets.unwrap_or(BUCKETS)),
                    ..FittedCategories::new(name.clone(), vec![], vec![], encoding)
                },
                _ => self.known(step, name, encoding).await?,
            });
        }
        Ok(fitted)
    }

    /// The known values of a column, and of how many rows they are.
    async fn known(
        &self,
        step: &StepConfig,
        name: &str,
        encoding: CategoryEncoding,
    ) -> Result<FittedCategories, Error> {
        let limit = step.max_values.unwrap_or(most_values(encoding)) as usize;
        let rejects = step.unknown == Some(UnknownCategories::Reject);
        // One more shows if these are all.
        let asked = limit + usize::from(rejects);
        let mut found = self.rows.frequent_texts(name, asked).await?;
        if rejects && found.len() > limit {
            return Err(Error::config(
                STEP,
                format!(
                    "column `{name}` has more than {limit} values in the training split, and `unknown = \"reject\"` would set \
                     aside rows of the others; raise `max_values` of its `categories` step, or accept unknown values"
                ),
            ));
        }
        if let Some(fewest) = step.min_count {
            found.retain(|value| value.rows >= fewest);
        }
        let (values, counts) = unzip(found);
        let mut fitted = FittedCategories::new(name.to_owned(), values, counts, encoding);
        fitted.min_count = step.min_count;
        fitted.rejects_unknown = rejects;
        if encoding == CategoryEncoding::Frequency {
            fitted.frequency = Some(FittedFrequency {
                rows: self.rows.count(),
                missing: self.rows.missing_texts(name).await?,
            });
        }
        if encoding == CategoryEncoding::Target {
            fitted.outcomes = Some(self.outcomes(step, &fitted).await?);
        }
        Ok(fitted)
    }
}
