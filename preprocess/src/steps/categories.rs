//! `categories`; [`crate::fit`] finds the known values.

use feedline_schemas::{
    count::counted,
    transform::{FittedCategories, FittedStep},
};

use super::fitted_column::{FittedColumn, NumberFormat};

impl FittedColumn for FittedCategories {
    fn name(&self) -> &str {
        &self.name
    }

    fn label(&self) -> &'static str {
        "categories"
    }

    fn describe(&self, _: &FittedStep, _: NumberFormat) -> Vec<String> {
        vec![category_text(self)]
    }
}

fn category_text(c: &FittedCategories) -> String {
    match c.buckets {
        Some(buckets) => format!("{}: {:?} in {buckets} buckets", c.name, c.encoding),
        None => {
            let known = format!("{}: {} known, {:?}", c.name, c.values.len(), c.encoding);
            let fewest = c.min_count.map_or_else(String::new, |fewest| {
                format!(", each in {} or more", counted(fewest, "row"))
            });
            let folds = c.outcomes.as_ref().map_or_else(String::new, |outcomes| {
                let (folds, rows) = (outcomes.folds, outcomes.smoothing);
                format!(", out of {folds} folds, smoothed by {rows} rows")
            });
            let others = if c.rejects_unknown {
                ", rows of others rejected"
            } else {
                ""
            };
            known + &fewest + &folds + others
        }
    }
}
