//! Indicators of missing cells that have the name of another feature.

use feedline_preprocess::CheckedDataset;
use feedline_schemas::config::{DatasetConfig, Step, StepConfig};

/// Key and reason of a build that fails, since an `impute` step names an indicator as a column is named.
pub(super) fn shared_indicator_name(
    settings: &DatasetConfig,
    dataset: &CheckedDataset,
) -> Option<(String, String)> {
    let has_indicator =
        |step: &&StepConfig| matches!(&step.step, Step::Impute(impute) if impute.indicator);
    let steps = settings.step.iter().flatten().filter(has_indicator);
    let mut columns = steps.flat_map(|step| match step.columns.is_empty() {
        true => &dataset.numeric,
        false => &step.columns,
    });
    let name_of = |column: &String| format!("{column}__missing");
    let column = columns.find(|column| dataset.numeric.contains(&name_of(column)))?;
    let name = name_of(column);
    let reason = format!(
        "two features would be named `{name}`: the indicator of missing cells of column `{column}` and column `{name}`; leave \
         that column out with `dataset.drop`, rename it, or remove `indicator = true` from the `impute` step"
    );
    Some(("dataset.step".to_owned(), reason))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    #[test]
    fn a_column_named_as_an_indicator_is_found() {
        let found = |step: &str, numeric: &[&str]| {
            let text =
                format!("[pipeline]\nname = \"p\"\n[dataset]\ntarget = \"y\"\nstep = [{step}]\n");
            let loaded = load("p.toml", &text, &[]).unwrap();
            let settings = loaded.config.dataset.unwrap();
            let dataset = CheckedDataset {
                numeric: numeric.iter().map(|name| (*name).to_owned()).collect(),
                ..CheckedDataset::default()
            };
            shared_indicator_name(&settings, &dataset)
        };
        let indicator = "{ type = \"impute\", indicator = true }";
        let (key, reason) = found(indicator, &["b", "a", "a__missing"]).unwrap();
        assert_eq!(key, "dataset.step");
        assert!(reason.starts_with("two features would be named `a__missing`: "));
        assert_eq!(found(indicator, &["a", "b__missing"]), None);
        let of_b = "{ type = \"impute\", indicator = true, columns = [\"b\"] }";
        assert_eq!(found(of_b, &["a", "a__missing", "b"]), None);
        assert_eq!(found("{ type = \"impute\" }", &["a", "a__missing"]), None);
    }
}
