//! Sources of a dataset, their log positions, and the hash of all inputs.

use feedline_schemas::{
    config::{
        Bounded, DatasetConfig, DocumentConfig, FeatureConfig, JoinConfig, SameTime, SeriesConfig,
        SourceConfig, TargetColumns,
    },
    ids::{Hash128, Name, TableName},
    manifest::SourceReference,
};
use feedline_storage::Store;
use serde::Serialize;

use crate::{
    Error,
    operators::{dedup::near, join},
    schema::landed_columns::nearest,
    source::{landing_zone::Landed, parquet_in_place},
};

/// Raised when the same inputs give other shards than before, so that an older dataset is not taken for this one.
const BUILD_VERSION: u32 = 4;

/// Version of a build, as the hash of its inputs has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BuildVersion {
    number: u32,
    /// Order of versions that are texts; some builds of version 3 have it.
    text_versions: Option<u32>,
    /// Rules for several rows of a series at one instant, for datasets that have them; some builds of version 4 lack them.
    series_rules: Option<u32>,
}

impl BuildVersion {
    /// Version of this release.
    pub(super) const CURRENT: Self = Self {
        number: BUILD_VERSION,
        text_versions: None,
        series_rules: Some(1),
    };

    /// All versions before it that build other rows by `config`, so that a rebuild can name its reason.
    pub(super) fn earlier(config: &DatasetConfig) -> impl Iterator<Item = Self> {
        let numbers = 1..BUILD_VERSION;
        let earlier = numbers.flat_map(|number| {
            [None, Some(1)].map(|text_versions| Self {
                number,
                text_versions,
                series_rules: None,
            })
        });
        let without_rules = Self {
            series_rules: None,
            ..Self::CURRENT
        };
        earlier.chain(has_series_rules(config).then_some(without_rules))
    }
}

/// Returns true if the rules of [`BuildVersion`] for series concern the dataset of `config`: several rows of an instant are one.
fn has_series_rules(config: &DatasetConfig) -> bool {
    let series = config.series.as_ref();
    series.is_some_and(|series| series.duplicates != SameTime::Error)
}

/// Key of the source that is the test split.
const FROZEN: &str = "dataset.split.frozen";

/// A source, or one of its child tables.
pub(crate) type Chosen<'a> = (&'a SourceConfig, Option<Name>);

/// Reads what sources have landed.
pub(super) async fn landed(root: &Store, sources: Vec<Chosen<'_>>) -> Result<Vec<Landed>, Error> {
    let mut landed = Vec::with_capacity(sources.len());
    for (source, table) in sources {
        landed.push(Landed::read(root, source, table.as_ref()).await?);
    }
    Ok(landed)
}

/// The sources that near-duplicates are looked for in, but that are no part of the dataset.
pub(super) fn frozen<'a>(
    dataset: &DatasetConfig,
    sources: &'a [SourceConfig],
) -> Result<Vec<Chosen<'a>>, Error> {
    let against = dataset
        .near_dup
        .as_ref()
        .map_or(&[][..], |near| &near.against);
    let against: Vec<TableName> = against.iter().cloned().map(TableName::from).collect();
    listed("dataset.near_dup.against", &against, sources)
}

/// The sources whose columns are put beside the rows of the dataset.
pub(super) fn joined<'a>(
    dataset: &DatasetConfig,
    sources: &'a [SourceConfig],
) -> Result<Vec<Chosen<'a>>, Error> {
    let names = join::sources(dataset);
    let is_row = |name: &&Name| {
        dataset
            .sources
            .iter()
            .chain(dataset.split.frozen())
            .any(|table| table.is_records_of(name))
    };
    if let Some(name) = names.iter().find(is_row) {
        let reason = format!(
            "`{name}` is in `dataset.join` too, but a source gives either rows or columns; remove it from one"
        );
        return Err(Error::config("dataset.sources", reason));
    }
    let names: Vec<TableName> = names.into_iter().map(TableName::from).collect();
    listed("dataset.join", &names, sources)
}

/// The sources a dataset is made of, in its order.
pub(crate) fn chosen<'a>(
    dataset: &DatasetConfig,
    sources: &'a [SourceConfig],
) -> Result<Vec<Chosen<'a>>, Error> {
    const KEY: &str = "dataset.sources";
    if dataset.files.is_some() {
        return check_files(dataset).map(|()| Vec::new());
    }
    if sources.is_empty() {
        return Err(Error::config(
            "source",
            "the pipeline has no `[[source]]`, so there is nothing to build from; add one, or name Parquet files with \
             `dataset.files`",
        ));
    }
    let mut wanted = match dataset.sources.is_empty() {
        true => own_sources(dataset, sources),
        false => dataset.sources.clone(),
    };
    if let Some(frozen) = dataset.split.frozen() {
        listed(FROZEN, std::slice::from_ref(frozen), sources)?;
        put_last(frozen, &mut wanted)?;
    }
    let wanted = &wanted;
    if wanted.is_empty() {
        let reason = "every source of the pipeline is in `dataset.near_dup.against` or `dataset.join`, so nothing is left to build from";
        return Err(Error::config(KEY, reason));
    }
    if let Some(near) = &dataset.near_dup {
        near::check_against(near, wanted)?;
    }
    listed(KEY, wanted, sources)
}

/// The sources that are neither joined nor only searched for near-duplicates.
fn own_sources(dataset: &DatasetConfig, sources: &[SourceConfig]) -> Vec<TableName> {
    let against = dataset
        .near_dup
        .as_ref()
        .map_or(&[][..], |near| &near.against);
    let joined = join::sources(dataset);
    let is_own = |name: &&Name| !against.contains(name) && !joined.contains(name);
    let names = sources.iter().map(|source| &source.name);
    names.filter(is_own).cloned().map(TableName::from).collect()
}

/// Moves the `frozen` source behind the others; there must be some.
fn put_last(frozen: &TableName, wanted: &mut Vec<TableName>) -> Result<(), Error> {
    wanted.retain(|name| name != frozen);
    if wanted.is_empty() {
        let reason = format!(
            "`{frozen}` is the only source, so nothing is left to learn from; name another beside it"
        );
        return Err(Error::config(FROZEN, reason));
    }
    wanted.push(frozen.clone());
    Ok(())
}

/// Rows of files are rows of numbers and categories, and the only ones.
fn check_files(dataset: &DatasetConfig) -> Result<(), Error> {
    let against = dataset.near_dup.as_ref().map(|near| &near.against);
    let others = [
        ("dataset.sources", !dataset.sources.is_empty()),
        ("dataset.join", !dataset.join.is_empty()),
        (FROZEN, dataset.split.frozen().is_some()),
        (
            "dataset.near_dup.against",
            against.is_some_and(|a| !a.is_empty()),
        ),
    ];
    if let Some((key, _)) = others.into_iter().find(|(_, given)| *given) {
        let reason = "it names sources, and `dataset.files` has the rows read from files; remove one of them";
        return Err(Error::config(key, reason));
    }
    if !dataset.kind.is_rows() {
        let reason = "it is for rows of numbers and categories; land files of this kind of dataset with a `[[source]]`";
        return Err(Error::config(parquet_in_place::KEY, reason));
    }
    Ok(())
}

/// The sources called `wanted`, at `key`.
fn listed<'a>(
    key: &str,
    wanted: &[TableName],
    sources: &'a [SourceConfig],
) -> Result<Vec<Chosen<'a>>, Error> {
    if wanted.len() > 256 {
        return Err(Error::config(key, "at most 256 sources can be listed"));
    }
    let mut found: Vec<Chosen<'_>> = Vec::new();
    for (i, name) in wanted.iter().enumerate() {
        if wanted[..i].contains(name) {
            return Err(Error::config(key, format!("`{name}` is listed twice")));
        }
        let source = sources.iter().find(|s| s.name == name.source);
        let source = source.ok_or_else(|| {
            let names: Vec<&str> = sources.iter().map(|s| s.name.as_str()).collect();
            let nearest = nearest(name.source.as_str(), names.iter().copied());
            let reason = format!(
                "there is no source `{}` among {}{nearest}",
                name.source,
                names.join(", ")
            );
            Error::config(key, reason)
        })?;
        if let Some(table) = &name.table {
            check_table(key, source, table)?;
        }
        found.push((source, name.table.clone()));
    }
    Ok(found)
}

/// A source has the child tables that its contract names.
///
/// # Errors
/// [`Error::Config`] about `key` for another table.
pub(crate) fn check_table(key: &str, source: &SourceConfig, table: &Name) -> Result<(), Error> {
    let tables = &source.contract.children;
    if tables.contains_key(table) {
        return Ok(());
    }
    let SourceConfig { name, .. } = source;
    let names: Vec<&str> = tables.keys().map(Name::as_str).collect();
    let reason = match names.is_empty() {
        true => format!(
            "source `{name}` has no child tables; make one of a list with `[source.contract.children.{table}]`"
        ),
        false => format!(
            "source `{name}` has no child table `{table}` among {}{}",
            names.join(", "),
            nearest(table.as_str(), names.iter().copied())
        ),
    };
    Err(Error::config(key, reason))
}

/// All that goes into a dataset.
#[derive(Serialize)]
struct HashedInputs<'a> {
    build: u32,
    dataset: &'a Name,
    config: &'a DatasetConfig,
    sources: Vec<&'a SourceReference>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    joined: Vec<&'a SourceReference>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    frozen: Vec<&'a SourceReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokenizer: Option<Hash128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: Option<Hash128>,
    /// Key and version of each source, if any has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keys: Vec<(&'a [String], Option<&'a str>)>,
    /// The same of the joined sources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    joined_keys: Vec<(&'a [String], Option<&'a str>)>,
    /// As [`BuildVersion`] has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    text_versions: Option<u32>,
    /// As [`BuildVersion`] has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    series_rules: Option<u32>,
}

/// Hash of all that goes into a dataset of `version`; of its sources at other positions, where some are given.
pub(super) fn input_hash(
    version: BuildVersion,
    dataset: &Name,
    config: &DatasetConfig,
    tokenizer: Option<Hash128>,
    expect: Option<Hash128>,
    [sources, joined, frozen]: [&[Landed]; 3],
    at: Option<[&[SourceReference]; 3]>,
) -> Hash128 {
    fn references(sources: &[Landed]) -> Vec<&SourceReference> {
        sources.iter().map(|s| &s.reference).collect()
    }
    fn keys(sources: &[Landed]) -> Vec<(&[String], Option<&str>)> {
        let keys: Vec<_> = sources.iter().map(Landed::newest).collect();
        match keys.iter().any(|(key, _)| !key.is_empty()) {
            true => keys,
            false => Vec::new(),
        }
    }
    let (keys, joined_keys) = (keys(sources), keys(joined));
    let [own, joined, frozen] = match at {
        None => [sources, joined, frozen].map(references),
        Some(at) => at.map(|at| at.iter().collect()),
    };
    let inputs = HashedInputs {
        build: version.number,
        dataset,
        config,
        sources: own,
        joined,
        frozen,
        tokenizer,
        expect,
        keys,
        joined_keys,
        text_versions: version.text_versions,
        series_rules: version.series_rules.filter(|_| has_series_rules(config)),
    };
    Hash128::of(
        &serde_json::to_vec(&inputs)
            .expect("a checked configuration has finite numbers and text keys"),
    )
}

/// Hash of the settings that decide what the columns of a row mean before the transform. Other settings change which rows
/// there are, or how the transform is fitted, which its artefact says.
pub(crate) fn columns_hash(config: &DatasetConfig) -> Hash128 {
    #[derive(Serialize)]
    struct Columns<'a> {
        sql: &'a Option<String>,
        join: &'a [JoinConfig],
        target: &'a Option<TargetColumns>,
        series: &'a Option<SeriesConfig>,
        feature: &'a [FeatureConfig],
        /// Length and horizon of windows.
        sequence: Option<(u32, Option<u32>)>,
        text: &'a Option<DocumentConfig>,
    }
    let DatasetConfig {
        sql,
        join,
        target,
        series,
        feature,
        sequence,
        text,
        ..
    } = config;
    let columns = Columns {
        sql,
        join,
        target,
        series,
        feature,
        sequence: sequence
            .as_ref()
            .map(|s| (s.length.get(), s.horizon.map(Bounded::get))),
        text,
    };
    Hash128::of(
        &serde_json::to_vec(&columns)
            .expect("a checked configuration has finite numbers and text keys"),
    )
}
