//! Known values of categories, and the handling of all others.

use feedline_schemas::{
    config::{Bounded, Categories, UnknownCategories, VocabularyCategories},
    transform::{FittedCategories, FittedFrequency},
};

use super::{
    aggregate::unzip,
    progress::{Fit, STEP},
};
use crate::Error;

impl Fit {
    pub(crate) async fn categories(
        &self,
        columns: &[String],
        step: &Categories,
    ) -> Result<Vec<FittedCategories>, Error> {
        let encoding = step.encoding();
        let mut fitted = Vec::with_capacity(columns.len());
        for name in columns {
            fitted.push(match step {
                Categories::Hash(hash) => FittedCategories {
                    buckets: Some(hash.buckets.get()),
                    ..FittedCategories::new(name.clone(), vec![], vec![], encoding)
                },
                Categories::OneHot(vocabulary) | Categories::Ordinal(vocabulary) => {
                    self.known(step, vocabulary, name).await?
                }
                Categories::Frequency(vocabulary) => {
                    let frequency = FittedFrequency {
                        rows: self.rows.count(),
                        missing: self.rows.missing_texts(name).await?,
                    };
                    let mut known = self.known(step, vocabulary, name).await?;
                    known.frequency = Some(frequency);
                    known
                }
                Categories::Target(target) => {
                    let mut known = self.known(step, &target.vocabulary, name).await?;
                    known.outcomes = Some(self.outcomes(target, &known).await?);
                    known
                }
            });
        }
        Ok(fitted)
    }

    /// The known values of a column, and of how many rows they are.
    async fn known(
        &self,
        step: &Categories,
        vocabulary: &VocabularyCategories,
        name: &str,
    ) -> Result<FittedCategories, Error> {
        let limit = step.max_values().unwrap_or_default() as usize;
        let rejects = vocabulary.unknown == Some(UnknownCategories::Reject);
        let min_count = vocabulary.min_count.map(Bounded::get);
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
        if let Some(fewest) = min_count {
            found.retain(|value| value.rows >= fewest);
        }
        let (values, counts) = unzip(found);
        let mut fitted = FittedCategories::new(name.to_owned(), values, counts, step.encoding());
        fitted.min_count = min_count;
        fitted.rejects_unknown = rejects;
        Ok(fitted)
    }
}
