//! A list of features that is written and empty, which means all columns.

use feedline_schemas::{config::Loaded, report::Warning};

const FEATURES: &str = "dataset.features";

/// Warns of an empty list of features in the file of a pipeline: it is the default.
pub(crate) fn warn_of_empty_features(loaded: &Loaded) -> Option<Warning> {
    let dataset = loaded.config.dataset.as_ref()?;
    if !dataset.features.is_empty() || !loaded.is_written(FEATURES) {
        return None;
    }
    let derived = dataset.feature.first().map(|feature| {
        let name = toml::Value::from(feature.name.as_str());
        format!(
            "; to have the features of `[[dataset.feature]]` alone, list one of them, such as `features = [{name}]`"
        )
    });
    let message = format!(
        "an empty list is the default: each column is a feature that no other key names; remove the key, or list the \
         features{}",
        derived.unwrap_or_default()
    );
    Some(Warning::new("empty_features", message).with_key(FEATURES))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{Override, load};

    use super::*;

    fn warn(dataset: &str, set: &[&str]) -> Option<String> {
        let text = format!("[pipeline]\nname = \"p\"\n[dataset]\ntarget = \"y\"\n{dataset}");
        let set = set.iter().map(|item| item.parse::<Override>().unwrap());
        let set: Vec<Override> = set.collect();
        let loaded = load("p.toml", &text, &set).unwrap();
        warn_of_empty_features(&loaded).map(|warning| warning.message)
    }

    #[test]
    fn an_empty_list_of_features_in_the_file_is_warned_of() {
        assert_eq!(warn("", &[]), None);
        assert_eq!(warn("features = [\"x\"]\n", &[]), None);
        // An override takes a list back.
        let set = ["dataset.features=[]"];
        assert_eq!(warn("features = [\"x\"]\n", &set), None);
        let message = warn("features = []\n", &[]).unwrap();
        assert!(
            message.ends_with("remove the key, or list the features"),
            "{message}"
        );
        let made = "features = []\nseries = { time = \"at\" }\n[[dataset.feature]]\nname = \"hour\"\ntype = \"calendar\"\npart = \"hour\"\n";
        let message = warn(made, &[]).unwrap();
        assert!(
            message.ends_with("such as `features = [\"hour\"]`"),
            "{message}"
        );
    }
}
