//! Settings for data that cannot be read without one: those that the error names, and otherwise
//! advice, since there is no pipeline yet to set them in.

use feedline_readers::remedy::Remedy;

use super::{
    location::Location,
    pipeline::{Pagination, source_text},
};

/// Most lists that are tried as the list of records.
const MAX_LISTS: usize = 8;

/// Locations with a setting of `remedies`, to be tried: the likely encoding, or one of the lists in a
/// document.
pub(crate) fn with_remedies(remedies: &[Remedy], location: &Location) -> Vec<Location> {
    let mut found = Vec::new();
    for remedy in remedies {
        match remedy {
            Remedy::Encoding(Some(encoding)) if location.encoding.is_none() => {
                found.push(Location {
                    encoding: Some(encoding.clone()),
                    ..location.clone()
                });
            }
            Remedy::Records(lists) => {
                let with = |list: &String| Location {
                    records: Some(list.clone()),
                    ..location.clone()
                };
                found.extend(lists.iter().take(MAX_LISTS).map(with));
            }
            Remedy::Encoding(_) | Remedy::Delimiter | Remedy::Header | Remedy::Members(_) => {}
        }
    }
    found
}

/// Advice for data that cannot be read and whose error has `remedies`: convert it, or write the pipeline
/// by hand. Empty for an error that no setting mends.
pub(crate) fn advice(remedies: &[Remedy], location: &Location) -> String {
    let example = |remedy| Some((remedy, example_of(remedy)?));
    let Some((remedy, example)) = remedies.iter().find_map(example) else {
        return String::new();
    };
    let convert = match remedy {
        Remedy::Encoding(_) => {
            "convert the file to UTF-8, such as by `iconv -f WINDOWS-1252 -t UTF-8`, or "
        }
        _ => "",
    };
    let source = source_text(location, &Pagination::default());
    let source: String = source.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "; `init` has no such setting: {convert}write the pipeline by hand, beginning with\n\n{source}    {example}\n"
    )
}

/// An example of the setting as a line of the source; `None` for members of an archive, which `init` tries itself.
fn example_of(remedy: &Remedy) -> Option<String> {
    Some(match remedy {
        Remedy::Encoding(_) => "csv = { encoding = \"windows-1252\" }".to_owned(),
        Remedy::Delimiter => "csv = { delimiter = \";\" }".to_owned(),
        Remedy::Header => "csv = { header = false }".to_owned(),
        Remedy::Records(lists) => {
            let list = lists.first().map_or("data", String::as_str);
            format!("records = {}", toml::Value::String(list.to_owned()))
        }
        Remedy::Members(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    fn location(suffix: &str) -> (tempfile::NamedTempFile, Location) {
        let file = tempfile::Builder::new().suffix(suffix).tempfile().unwrap();
        let location = Location::new(&file.path().display().to_string()).unwrap();
        (file, location)
    }

    #[test]
    fn advice_is_a_pipeline_that_loads_with_the_missing_setting() {
        let (_file, location) = location(".csv");
        let of = |remedy: Remedy| {
            let text = advice(&[Remedy::Members(Vec::new()), remedy], &location);
            let (words, pipeline) = text.split_once("\n\n").unwrap();
            let source = load("p.toml", pipeline, &[])
                .unwrap()
                .config
                .source
                .remove(0);
            (words.to_owned(), source)
        };
        let (words, source) = of(Remedy::Encoding(None));
        assert!(words.contains("iconv"), "{words}");
        assert_eq!(source.csv.encoding.as_deref(), Some("windows-1252"));
        let (words, source) = of(Remedy::Records(vec!["ro\"ws".to_owned()]));
        assert!(!words.contains("iconv"), "{words}");
        assert_eq!(source.records, "ro\"ws");
        assert_eq!(of(Remedy::Records(Vec::new())).1.records, "data");
        assert_eq!(of(Remedy::Delimiter).1.csv.delimiter.as_deref(), Some(";"));
        assert!(!of(Remedy::Header).1.csv.header);
        assert_eq!(advice(&[], &location), "");
        assert_eq!(advice(&[Remedy::Members(Vec::new())], &location), "");
    }

    #[test]
    fn settings_that_an_error_names_are_tried() {
        let (_file, location) = location(".json");
        let tried = |remedy: Remedy| {
            let settings = with_remedies(&[remedy], &location).into_iter();
            let settings = settings.map(|tried| (tried.encoding, tried.records));
            settings.collect::<Vec<_>>()
        };
        let some = |text: &str| Some(text.to_owned());
        let lists = ["data.items", "x"].map(str::to_owned).to_vec();
        assert_eq!(
            tried(Remedy::Records(lists)),
            [(None, some("data.items")), (None, some("x"))]
        );
        let encoding = [Remedy::Encoding(some("windows-1251"))];
        let expected = [(some("windows-1251"), None)];
        assert_eq!(tried(encoding[0].clone()), expected);
        assert_eq!(tried(Remedy::Encoding(None)), []);
        assert_eq!(tried(Remedy::Header), []);
        let found = with_remedies(&encoding, &location);
        assert_eq!(with_remedies(&encoding, &found[0]), []);
    }
}
