//! Values of the column that decides which row of a key is the latest.

use feedline_ingest::SourcePreview;
use feedline_preprocess::check_version_samples;
use feedline_schemas::{
    config::{DeclaredType, SourceConfig},
    record::ColumnType,
    report::Warning,
};

/// Warns of a `version` of `source` that is text, if the values looked at have no order but that of
/// their bytes.
pub(super) fn version_warning(preview: &SourcePreview, source: &SourceConfig) -> Option<Warning> {
    let version = source.version.as_ref().filter(|_| !source.key.is_empty())?;
    let mut columns = preview.columns.iter();
    let column = columns.find(|column| column.name == *version)?;
    if column.column_type != Some(ColumnType::Utf8) {
        return None;
    }
    let declared = source.contract.column.get(version);
    let is_declared = declared.is_some_and(|column| column.r#type == Some(DeclaredType::Text));
    check_version_samples(source.name.as_str(), version, &column.samples, is_declared)
}

#[cfg(test)]
mod tests {
    use feedline_ingest::ColumnPreview;
    use feedline_schemas::config::load;

    use super::*;

    #[test]
    fn a_version_of_texts_without_an_order_is_warned_of_by_its_samples() {
        let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"a/*\"\nkey = [\"id\"]\n\
                    version = \"u\"\n";
        let mut source = load("p.toml", text, &[]).unwrap().config.source.remove(0);
        let found = |source: &SourceConfig, r#type, samples: [&str; 2]| {
            let column = ColumnPreview {
                name: "u".to_owned(),
                column_type: Some(r#type),
                samples: samples.map(str::to_owned).to_vec(),
                ..ColumnPreview::default()
            };
            let preview = SourcePreview {
                columns: vec![column],
                ..SourcePreview::default()
            };
            version_warning(&preview, source)
        };
        let warning = found(&source, ColumnType::Utf8, ["01.02.2024", "31.01.2024"]).unwrap();
        assert_eq!(warning.code, "version_is_text");
        assert!(
            warning.message.contains("`01.02.2024` and `31.01.2024`"),
            "{warning:?}"
        );
        let times = ["2026-02-01T00:00:00.5Z", "2026-02-01T00:00:00Z"];
        assert_eq!(found(&source, ColumnType::Utf8, times), None);
        assert_eq!(found(&source, ColumnType::Timestamp, ["v1", "v2"]), None);
        let column = source.contract.column.entry("u".to_owned()).or_default();
        column.r#type = Some(DeclaredType::Text);
        let declared = found(&source, ColumnType::Utf8, ["2024-W01", "2024-W02"]);
        assert_eq!(declared, None);
    }
}
