//! Columns of a source before its first record.

use feedline_schemas::{commit::SourceState, config::SourceConfig, record::RecordSchema};

use crate::{
    commit_log::{Commit, CommitLog},
    context::Context,
    error::Error,
    setting_changes::adopt,
    settings::config_hash,
};

/// Lands the columns of `schema` without a record, in a source that has landed nothing. Its records are
/// then decided as those that follow earlier ones with these columns.
///
/// # Errors
/// [`Error::Config`] for a source that has a log; [`Error::Log`], [`Error::Fenced`] if another run began
/// it meanwhile, [`Error::Storage`].
pub async fn land_columns(
    config: &SourceConfig,
    schema: RecordSchema,
    context: &Context,
) -> Result<(), Error> {
    let (root, hash) = (&context.root, config_hash(config));
    let mut log = CommitLog::open(root, &config.name, &context.run_id, hash).await?;
    if log.last().is_some() {
        let reason = "the source has landed already, so it has its own columns";
        return Err(Error::config("name", reason));
    }
    adopt(config, &mut log, &*context.secrets).await?;
    let commit = Commit::of_columns(schema, SourceState::default());
    log.append(commit).await
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::load,
        ids::SchemaVersion,
        record::{
            Column,
            ColumnType::{self, Float64, Int64},
        },
    };

    use super::*;
    use crate::{commit_log::landed, files::tests::Folder, run::ingest, testing::context};

    fn schema_of(columns: [(&str, ColumnType); 2]) -> RecordSchema {
        let columns = columns.into_iter().zip(1..);
        let columns = columns.map(|((name, r#type), field_id)| Column {
            field_id,
            name: name.to_owned(),
            r#type,
            whole: false,
        });
        RecordSchema {
            version: SchemaVersion::new(1),
            columns: columns.collect(),
        }
    }

    #[tokio::test]
    async fn records_after_landed_columns_are_decided_as_after_earlier_records() {
        // Alone, each of the columns would be text.
        let folder = Folder::new(&[("a.csv", b"n,m\n1e-05,1\noops,2\n2,1E3\n3,7\n")]);
        let url = folder.path("a.csv");
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{url}'\n\
             contract.max_reject_fraction = 1\n"
        );
        let config = load("p", &text, &[]).unwrap().config;
        let (source, context) = (&config.source[0], context());
        let integers = schema_of([("n", Int64), ("m", Int64)]);
        land_columns(source, integers.clone(), &context)
            .await
            .unwrap();
        let report = ingest(&config, None, &context).await.unwrap();
        assert_eq!((report.rows, report.rejected), (2, 2));
        let log = landed(&context.root, &source.name).await.unwrap().unwrap();
        let expected = schema_of([("n", Float64), ("m", Int64)]);
        assert_eq!(log.schema.columns, expected.columns);

        let again = land_columns(source, integers, &context).await;
        let error = again.unwrap_err().to_string();
        assert!(error.contains("has landed already"), "{error}");
    }
}
