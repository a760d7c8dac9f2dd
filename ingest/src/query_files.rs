//! Files of GraphQL queries, which are read with the configuration.
//!
//! The text takes the place of the file, so that a changed file is a changed setting.

use std::{fs::File, io::Read as _, path::Path};

use feedline_schemas::config::{PipelineConfig, QueryFile, QueryText};

use crate::error::Error;

/// Largest file of a query, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Reads the queries of `config` that are given as files. A relative path begins at `folder`, that
/// of the pipeline file.
///
/// ```
/// use std::path::Path;
///
/// use feedline_ingest::read_queries;
/// use feedline_schemas::config::load;
///
/// # let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("items.graphql"), "{ items { id } }")?;
/// let text = "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\n\
///             url = 'http://localhost/'\ngraphql.query = { file = 'items.graphql' }\n";
/// let mut config = load("p.toml", text, &[])?.config;
/// read_queries(&mut config, folder.path())?;
/// let query = config.source[0].graphql.as_ref().map(|graphql| graphql.query.text());
/// assert_eq!(query, Some("{ items { id } }"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Config`] for a file that cannot be read, is no UTF-8 text, or is larger than 1 MiB.
pub fn read_queries(config: &mut PipelineConfig, folder: &Path) -> Result<(), Error> {
    for (index, source) in config.source.iter_mut().enumerate() {
        let Some(graphql) = &mut source.graphql else {
            continue;
        };
        let QueryText::File(QueryFile { file }) = &graphql.query else {
            continue;
        };
        let path = folder.join(file);
        let text = read(&path).map_err(|reason| {
            let key = format!("source.{index}.graphql.query");
            let path = path.display();
            let reason = format!("the query file `{path}` {reason}; a relative path begins at the folder of the pipeline file");
            Error::config(key, reason)
        })?;
        graphql.query = QueryText::Text(text);
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    let unreadable = |e: std::io::Error| format!("cannot be read: {e}");
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(unreadable)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err("is larger than 1 MiB, which no query is".into());
    }
    String::from_utf8(bytes).map_err(|_| "is not valid UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    fn config(file: &str) -> PipelineConfig {
        let text = format!(
            "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\nurl = 'http://h/'\ngraphql.query = {{ file = '{file}' }}\n"
        );
        load("p.toml", &text, &[]).unwrap().config
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let check = |file: &str, part: &str| {
            let error = read_queries(&mut config(file), folder.path()).unwrap_err();
            let error = error.to_string();
            let path = folder.path().join(file).display().to_string();
            assert!(
                error.starts_with("`source.0.graphql.query`: ")
                    && error.contains(&path)
                    && error.contains(part),
                "{error}"
            );
        };
        check("none.graphql", "No such file");
        std::fs::write(folder.path().join("bytes"), b"\xff").unwrap();
        check("bytes", "UTF-8");
        std::fs::write(folder.path().join("large"), vec![b' '; (1 << 20) + 1]).unwrap();
        check("large", "larger than 1 MiB");
        std::fs::write(folder.path().join("wide"), "é".repeat(1 << 20)).unwrap();
        check("wide", "larger than 1 MiB");
    }

    #[test]
    fn a_changed_file_is_a_changed_setting() {
        let folder = tempfile::tempdir().unwrap();
        let hash = |text: &str| {
            std::fs::write(folder.path().join("q"), text).unwrap();
            let mut config = config("q");
            read_queries(&mut config, folder.path()).unwrap();
            crate::settings::config_hash(&config.source[0])
        };
        assert_ne!(hash("{ a }"), hash("{ b }"));
    }
}
