//! Settings for data that cannot be read without one: those that the error names, and otherwise
//! advice, since there is no pipeline yet to set them in.

use super::{
    location::Location,
    pipeline::{Pagination, source_text},
};

/// Keys that a reason for unreadable data names, with an example of each as a line of the source.
const KEYS: [(&str, &str); 4] = [
    ("`csv.encoding`", "csv = { encoding = \"windows-1252\" }"),
    ("`csv.delimiter`", "csv = { delimiter = \";\" }"),
    ("`csv.header", "csv = { header = false }"),
    ("`records`", "records = \"data\""),
];

/// Most lists that are tried as the list of records.
const MAX_LISTS: usize = 8;

/// Locations with a setting that `error` names, to be tried: the likely encoding, or one of the lists
/// in a document.
pub(crate) fn remedies(error: &str, location: &Location) -> Vec<Location> {
    let mut found = Vec::new();
    if let Some((_, rest)) = error.split_once("set `csv.encoding` to `")
        && let Some((encoding, _)) = rest.split_once('`')
        && location.encoding.is_none()
    {
        found.push(Location {
            encoding: Some(encoding.to_owned()),
            ..location.clone()
        });
    }
    let named = error.split_once("set `csv.skip_rows = 1` and `csv.delimiter = \"");
    if let Some((delimiter, _)) = named.and_then(|(_, rest)| rest.split_once("\"`"))
        && location.named_delimiter.is_none()
        // The files of a folder may begin otherwise.
        && !location.url.contains('*')
    {
        found.push(Location {
            named_delimiter: Some(delimiter.to_owned()),
            ..location.clone()
        });
    }
    if let Some((_, lists)) = error.split_once("(lists in it: `") {
        let lists = lists.split_once("`)").map_or(lists, |(lists, _)| lists);
        let with = |list: &str| Location {
            records: Some(list.to_owned()),
            ..location.clone()
        };
        found.extend(lists.split("`, `").take(MAX_LISTS).map(with));
    }
    found
}

/// Remedies for data that cannot be read because of `error`: convert it, or write the pipeline by
/// hand. Empty for an error that no setting mends.
pub(crate) fn advice(error: &str, location: &Location) -> String {
    let Some((key, example)) = KEYS.iter().find(|(key, _)| error.contains(key)) else {
        return String::new();
    };
    let found = error.split_once("(lists in it: `").map(|(_, lists)| lists);
    let list = found.and_then(|lists| lists.split('`').next());
    let example = match list {
        Some(list) if *key == "`records`" => {
            format!("records = {}", toml::Value::String(list.to_owned()))
        }
        _ => (*example).to_owned(),
    };
    let convert = match *key {
        "`csv.encoding`" => {
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

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    #[test]
    fn advice_is_a_pipeline_that_loads_with_the_missing_setting() {
        let file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
        let location = Location::new(&file.path().display().to_string()).unwrap();
        let of = |error: &str| {
            let text = advice(error, &location);
            let (words, pipeline) = text.split_once("\n\n").unwrap();
            let source = load("p.toml", pipeline, &[])
                .unwrap()
                .config
                .source
                .remove(0);
            (words.to_owned(), source)
        };
        let (words, source) =
            of("its header line is not UTF-8: set `csv.encoding` to `windows-1252`");
        assert!(words.contains("iconv"), "{words}");
        assert_eq!(source.csv.encoding.as_deref(), Some("windows-1252"));
        let (words, source) = of("set `records` to the path of the list (lists in it: `ro\"ws`)");
        assert!(!words.contains("iconv"), "{words}");
        assert_eq!(source.records, "ro\"ws");
        assert_eq!(advice("it is a folder", &location), "");
    }

    #[test]
    fn settings_that_an_error_names_are_tried() {
        let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
        let location = Location::new(&file.path().display().to_string()).unwrap();
        let tried = |error: &str| {
            let settings = remedies(error, &location).into_iter();
            let settings = settings.map(|tried| (tried.encoding, tried.records));
            settings.collect::<Vec<_>>()
        };
        let some = |text: &str| Some(text.to_owned());
        let lists = "set `records` to the path of the list (lists in it: `data.items`, `x`)";
        assert_eq!(
            tried(lists),
            [(None, some("data.items")), (None, some("x"))]
        );
        let encoding = "it is not UTF-8: set `csv.encoding` to `windows-1251`; with `utf-8` there";
        assert_eq!(tried(encoding), [(some("windows-1251"), None)]);
        assert_eq!(tried("it is a folder"), []);
        let line = "its first line `sep=;` is no header: set `csv.skip_rows = 1` and `csv.delimiter = \";\"`";
        let found = remedies(line, &location);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].named_delimiter.as_deref(), Some(";"));
        assert_eq!(remedies(line, &found[0]), []);
    }
}
