//! Columns of values that another source requests (`for_each.column`), by their types in a preview.

use feedline_schemas::{config::PipelineConfig, record::ColumnType};

use super::SourcePreview;
use crate::backfill::describe_refused_type;

/// Returns the key and the reason for each `for_each.column` whose values a run refuses to request, by the type of
/// that column in `previews`.
#[must_use]
pub fn refused_columns(
    config: &PipelineConfig,
    previews: &[SourcePreview],
) -> Vec<(String, String)> {
    let sources = config.source.iter().enumerate();
    let refused = sources.filter_map(|(index, source)| {
        let each = source.for_each.as_ref()?;
        let (list, column) = (each.source.as_ref()?, each.column.as_ref()?);
        let of_list = |preview: &&SourcePreview| preview.source == list.as_str();
        let preview = previews.iter().find(of_list)?;
        let mut columns = preview.columns.iter();
        let found = columns.find(|found| found.name == *column)?;
        let is_refused = preview.error.is_none() && !is_requested(found.column_type?);
        is_refused.then(|| {
            let reason = describe_refused_type(list, column, found.r#type);
            (format!("source.{index}.for_each.column"), reason)
        })
    });
    refused.collect()
}

/// Returns true for a type whose values are stored as text or integers.
const fn is_requested(found: ColumnType) -> bool {
    matches!(
        found,
        ColumnType::Null | ColumnType::Int64 | ColumnType::Utf8 | ColumnType::Json
    )
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;
    use crate::{
        files::tests::Folder,
        preview::preview,
        run::ingest,
        testing::{Scripted, context, ok},
    };

    #[tokio::test]
    async fn a_check_refuses_the_columns_that_a_run_refuses_with_the_same_reason() {
        let server = Scripted::answering(|_, _| ok("[]")).await;
        for (table, name, more) in [
            ("id\n1.5\n2.5\n", "float", ""),
            ("id\n2024-01-31\n2024-02-01\n", "timestamp", ""),
            ("id\n18446744073709551615\n", "decimal", ""),
            ("id\n1\n2\n", "", ""),
            ("id\na\nb\n", "", ""),
            ("id\n1.5\n", "", "contract.column.id.type = \"text\"\n"),
        ] {
            let folder = Folder::new(&[("a.csv", table.as_bytes())]);
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"list\"\ntype = \"files\"\nurl = '{}'\n{more}\
                 [[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"{}\"\n\
                 for_each = {{ param = \"v\", source = \"list\", column = \"id\" }}\n",
                folder.path("a.csv"),
                server.url
            );
            let config = load("p", &text, &[]).unwrap().config;
            let context = context();
            let previews = preview(&config, None, 0, &context).await.unwrap();
            let refused = refused_columns(&config, &previews);
            let run = ingest(&config, None, &context).await;
            if name.is_empty() {
                assert!(refused.is_empty(), "{refused:?}");
                run.unwrap();
                continue;
            }
            let [(key, reason)] = &refused[..] else {
                panic!("{refused:?}");
            };
            assert_eq!(run.unwrap_err().to_string(), format!("`{key}`: {reason}"));
            let start = format!("`id` of the source `list` has the type {name}, and only");
            assert!(reason.starts_with(&start), "{reason}");
            let remedy = "set `contract.column.\"id\".type = \"text\"` in that source, and run `feedline ingest reset PIPELINE.toml list`";
            assert!(reason.contains(remedy), "{reason}");
        }
    }
}
