//! `[dataset.series]` and `[[dataset.feature]]` against the landed columns.

use std::sync::Arc;

use feedline_schemas::{
    config::{DatasetConfig, FeatureConfig, Lookback, SeriesConfig, Step, TimeColumn},
    record::ColumnType,
};

use super::{
    features::{Feature, FeatureKind, RESERVED, Series},
    instant::{self, Instant},
    sequence,
    window::Span,
};
use crate::{
    Error,
    schema::{
        landed_columns::{MergedColumn, find},
        system_columns::check_reserved,
    },
};

const KEY: &str = "dataset.series";

/// The series that a dataset asks for.
///
/// # Errors
/// [`Error::Config`] for columns that are missing or do not fit, and for keys that contradict one
/// another.
pub(crate) fn resolve(
    config: &DatasetConfig,
    columns: &[MergedColumn],
) -> Result<Option<Series>, Error> {
    let Some(series) = &config.series else {
        if config.sequence.is_some() {
            let reason = "windows are over time: name the column of the time in `[dataset.series]`";
            return Err(Error::config("dataset.sequence", reason));
        }
        return match config.feature.is_empty() {
            true => Ok(None),
            false => Err(Error::config(
                "dataset.feature",
                "features are made over time: name the column of the time in `[dataset.series]`",
            )),
        };
    };
    if !config.kind.is_rows() {
        let reason =
            "only rows of numbers make series (`dataset.kind = \"rows\"`), remove this section";
        return Err(Error::config(KEY, reason));
    }
    let reserved = |column: &&MergedColumn| column.name.starts_with(RESERVED);
    if let Some(column) = columns.iter().find(reserved) {
        let reason = format!(
            "column `{}` has a name that the build itself uses; rename it in the source",
            column.name
        );
        return Err(Error::config(KEY, reason));
    }
    let at = |field: &str| match field {
        "column" => format!("{KEY}.time"),
        field => format!("{KEY}.{field}"),
    };
    let instant = check_time(&time_of(series), columns, &at)?;
    check_entity_roles(config)?;
    check_entity(series, columns)?;
    if series.gaps.is_some() && series.max_gap.is_none() {
        let reason = "it says what happens beyond `max_gap`, give that too";
        return Err(Error::config(format!("{KEY}.gaps"), reason));
    }
    let mut resolved = Series {
        time: series.time.clone(),
        clock: series.clock.clone(),
        instant,
        entity: series.entity.clone(),
        sources: Vec::new(),
        duplicates: series.duplicates,
        targets: config.targets().to_vec(),
        asked_source: None,
        asked_replace_landed: false,
        has_splits: config.split.by.is_named() || config.split.frozen().is_some(),
        max_gap: series
            .max_gap
            .map(|gap| (gap.micros(), series.gaps.unwrap_or_default())),
        warm_start: series.warm_start,
        of: Vec::new(),
        features: Vec::new(),
        sequence: sequence::resolve(config, &series.entity)?,
        long_steps: Arc::default(),
        clock_changes: Arc::default(),
        windowless: Arc::default(),
    };
    for (index, feature) in config.feature.iter().enumerate() {
        let key = |field: &str| format!("dataset.feature.{index}.{field}");
        let feature = resolved.feature(feature, config, columns, &key)?;
        resolved.features.push(feature);
    }
    check_roles(&resolved, config)?;
    check_split(&resolved, config)?;
    Ok(Some(resolved))
}

/// Checks the format of the timestamps of `time`, which the configuration has at `key`.
///
/// # Errors
/// [`Error::Config`] for columns that are missing or hold no times, and for keys that do not fit
/// them.
pub(crate) fn check_time(
    time: &TimeColumn,
    columns: &[MergedColumn],
    key: &impl Fn(&str) -> String,
) -> Result<Instant, Error> {
    let refused = |field: &str, reason: String| Err(Error::config(key(field), reason));
    let found = find(&key("column"), &time.column, columns)?;
    let is_text = match found.r#type {
        ColumnType::Utf8 => true,
        ColumnType::Timestamp | ColumnType::Int64 | ColumnType::Float64 => false,
        _ => {
            let name = &found.name;
            let reason = format!(
                "column `{name}` holds no points in time; name one of times, texts or numbers"
            );
            return refused("column", reason);
        }
    };
    let is_number = found.r#type.is_number();
    if is_number != time.unit.is_some() {
        let reason = match is_number {
            true => format!(
                "column `{}` holds numbers: say whether they are `s`, `ms`, `us` or `ns` since 1970",
                found.name
            ),
            false => format!("column `{}` holds no numbers, remove this key", found.name),
        };
        return refused("unit", reason);
    }
    check_clock(time, is_text, columns, key)?;
    match &time.format {
        Some(_) if !is_text => {
            let held = match is_number {
                true => "numbers, which `unit` reads",
                false => "no text",
            };
            return refused(
                "format",
                format!(
                    "column `{name}` holds {held}, remove this key, or land it as text: `source.contract.column.\"{name}\".type = \"text\"`",
                    name = time.column
                ),
            );
        }
        Some(format) => {
            if let Some(fault) = instant::format_fault(format) {
                return refused("format", fault);
            }
        }
        None => {}
    }
    if instant::zone_of(time.zone.as_deref()).is_none() {
        let zone = time.zone.as_deref().unwrap_or_default();
        return refused(
            "zone",
            format!("there is no time zone `{zone}`; write one such as `Europe/Rome`"),
        );
    }
    let instant = Instant {
        format: time.format.clone(),
        unit: time.unit,
        zone: time.zone.clone(),
        is_later: false,
        ambiguous: time.ambiguous,
    };
    if time.ambiguous.is_some() && !(is_text && instant.is_local()) {
        return refused("ambiguous", not_local(&time.column, is_text));
    }
    Ok(instant)
}

/// Checks the column of the time of day, if there is one; `is_text` says that the time holds text.
fn check_clock(
    time: &TimeColumn,
    is_text: bool,
    columns: &[MergedColumn],
    key: &impl Fn(&str) -> String,
) -> Result<(), Error> {
    let Some(clock) = &time.clock else {
        return Ok(());
    };
    let found = find(&key("clock"), clock, columns)?;
    if is_text && found.r#type == ColumnType::Utf8 {
        return Ok(());
    }
    let other = match is_text {
        true => clock,
        false => &time.column,
    };
    let reason = format!(
        "`{clock}` is put behind the text of `{}`, so both columns must hold text, and `{other}` landed as another type; \
         land it as text: `source.contract.column.\"{other}\".type = \"text\"`, under another source name if it has landed already",
        time.column
    );
    Err(Error::config(key("clock"), reason))
}

/// Reason to refuse a reading of times that clocks show twice, where there is none.
fn not_local(column: &str, is_text: bool) -> String {
    match is_text {
        true => format!(
            "strings of `{column}` are read in UTC, where clocks show no time twice; name their time zone with `zone`, or remove \
             this key"
        ),
        false => format!(
            "column `{column}` holds no text: its times are instants already; remove this key"
        ),
    }
}

/// The time of a series.
fn time_of(series: &SeriesConfig) -> TimeColumn {
    TimeColumn {
        column: series.time.clone(),
        clock: series.clock.clone(),
        format: series.format.clone(),
        unit: series.unit,
        zone: series.zone.clone(),
        ambiguous: series.ambiguous,
    }
}

fn check_entity(series: &SeriesConfig, columns: &[MergedColumn]) -> Result<(), Error> {
    let key = format!("{KEY}.entity");
    for name in &series.entity {
        let column = find(&key, name, columns)?;
        let is_unfit = matches!(column.r#type, ColumnType::Binary | ColumnType::Json);
        if is_unfit || column.r#type.is_list() {
            let reason = format!(
                "column `{name}` holds lists or bytes, which tell no entities apart; name another"
            );
            return Err(Error::config(key, reason));
        }
    }
    Ok(())
}

/// Checks that the columns of the entity of a series of rows have no other role.
///
/// # Errors
/// [`Error::Config`] for a target, the time, and a column that is listed twice.
pub(crate) fn check_entity_roles(config: &DatasetConfig) -> Result<(), Error> {
    let series = config.series.as_ref();
    let Some(series) = series.filter(|_| config.kind.is_rows()) else {
        return Ok(());
    };
    let key = format!("{KEY}.entity");
    for (i, name) in series.entity.iter().enumerate() {
        if config.is_target(name) {
            let reason = format!(
                "`{name}` is the target: which rows make a series would tell a model what it is asked; remove it"
            );
            return Err(Error::config(key, reason));
        }
        if series.time == *name || series.clock.as_ref() == Some(name) {
            let reason = format!(
                "`{name}` is the time of the rows: each time would be a series of its own, without a past; remove it"
            );
            return Err(Error::config(key, reason));
        }
        if series.entity[..i].contains(name) {
            return Err(Error::config(key, format!("`{name}` is listed twice")));
        }
    }
    Ok(())
}

/// Checks that generated features are no key and no target, and that the time is not imputed.
fn check_roles(series: &Series, config: &DatasetConfig) -> Result<(), Error> {
    let is_own = |name: &&String| series.is_time(name) || series.entity.contains(*name);
    if let Some(name) = config.dedup_ignore.iter().find(is_own) {
        let reason = format!(
            "`{name}` tells when or of whom a reading is: readings that differ in it alone would be dropped, and leave holes in \
             the series; remove it"
        );
        return Err(Error::config("dataset.dedup_ignore", reason));
    }
    let roles = [
        ("dataset.target", config.targets()),
        ("dataset.split.key", &config.split.key),
        ("dataset.categorical", &config.categorical),
    ];
    for (key, names) in roles {
        if let Some(name) = names.iter().find(|name| series.makes(name)) {
            let reason = format!(
                "`{name}` is a feature of `[[dataset.feature]]`, name a column that landed"
            );
            return Err(Error::config(key, reason));
        }
    }
    for (i, step) in config.step.iter().flatten().enumerate() {
        let is_time = |name: &&String| matches!(step.step, Step::Impute(_)) && series.is_time(name);
        if let Some(name) = step.columns.iter().find(is_time) {
            let reason = format!(
                "`{name}` is the time of the rows, a time that was made up would put them out of order; remove it"
            );
            return Err(Error::config(format!("dataset.step.{i}.columns"), reason));
        }
        let columns = step.columns.iter().filter(|_| step.is_categories());
        let texts = columns.map(|name| ("columns", name));
        let mut texts = texts.chain(step.by().into_iter().map(|name| ("by", name)));
        if let Some((key, name)) = texts.find(|(_, name)| series.makes(name)) {
            let reason = format!(
                "`{name}` is a feature of `[[dataset.feature]]`, which are numbers; name a category that landed"
            );
            return Err(Error::config(format!("dataset.step.{i}.{key}"), reason));
        }
    }
    Ok(())
}

/// A split by content tears every series apart.
fn check_split(series: &Series, config: &DatasetConfig) -> Result<(), Error> {
    let split = &config.split;
    let of_entities = !split.key.is_empty() && split.key.iter().all(|k| series.entity.contains(k));
    if !series.looks_back_within_split() || !split.by.is_key() || of_entities {
        return Ok(());
    }
    let alone = split.train >= 1.0;
    if alone {
        return Ok(());
    }
    Err(Error::config(
        "dataset.split.by",
        "rows that are neighbours in time would be in different splits, and features be made of rows of another split; \
         split by time (`by = \"time\"`, with an `embargo` as long as features look back), by `\"range\"` where rows land in the order of \
         time, or let `dataset.split.key` name columns of `dataset.series.entity`",
    ))
}

impl Series {
    fn feature(
        &mut self,
        feature: &FeatureConfig,
        config: &DatasetConfig,
        columns: &[MergedColumn],
        key: &impl Fn(&str) -> String,
    ) -> Result<Feature, Error> {
        check_name(feature, columns, self, key)?;
        let made = &feature.feature;
        let (of, closed) = (made.column(), made.closed().unwrap_or_default());
        if let Some(of) = of {
            self.check_of(of, columns, key)?;
            if config.is_target(of) && made.sees_itself() {
                let reason = format!(
                    "`{of}` is the target, and this feature is made of the row's own value: a model would be given the answer; use `closed = \"left\"` or a `lag`"
                );
                return Err(Error::config(key("column"), reason));
            }
        }
        let rows = match made.lookback() {
            Some(Lookback::Rows(rows)) => Some(rows),
            Some(Lookback::Window(_)) | None => None,
        };
        let least = usize::try_from(made.min_periods().or(rows).unwrap_or(1)).unwrap_or(1);
        let kind = FeatureKind::of(made);
        let pairs = matches!(kind, FeatureKind::RollingStd | FeatureKind::Momentum);
        Ok(Feature {
            name: feature.name.clone(),
            kind,
            of: of.map(|of| self.place(of)),
            span: made.lookback().map(span),
            least: least.max(if pairs { 2 } else { 1 }),
            closed,
        })
    }

    fn check_of(
        &self,
        of: &str,
        columns: &[MergedColumn],
        key: &impl Fn(&str) -> String,
    ) -> Result<(), Error> {
        if self.makes(of) {
            let reason = format!(
                "`{of}` is a feature of `[[dataset.feature]]` itself, name a column that landed"
            );
            return Err(Error::config(key("column"), reason));
        }
        let column = find(&key("column"), of, columns)?;
        let is_number = column.r#type.is_number();
        if self.is_time(of)
            || !(is_number || matches!(column.r#type, ColumnType::Bool | ColumnType::Utf8))
        {
            let reason = format!("column `{of}` holds no numbers; name one that does");
            return Err(Error::config(key("column"), reason));
        }
        Ok(())
    }

    fn place(&mut self, of: &String) -> usize {
        let found = self.of.iter().position(|name| name == of);
        found.unwrap_or_else(|| {
            self.of.push(of.clone());
            self.of.len() - 1
        })
    }
}

fn check_name(
    feature: &FeatureConfig,
    columns: &[MergedColumn],
    series: &Series,
    key: &impl Fn(&str) -> String,
) -> Result<(), Error> {
    let name = &feature.name;
    let reason = if name.is_empty() {
        "a feature needs a name".to_owned()
    } else if columns.iter().any(|column| column.name == *name) {
        format!("a column `{name}` has landed, choose another name")
    } else if series.makes(name) {
        format!("another feature is called `{name}`, choose another name")
    } else if name.starts_with(RESERVED) {
        format!("`{name}` is a name that the build itself uses, choose another")
    } else {
        return check_reserved(&key("name"), name);
    };
    Err(Error::config(key("name"), reason))
}

fn span(lookback: Lookback) -> Span {
    match lookback {
        Lookback::Rows(rows) => Span::Rows(i64::from(rows)),
        Lookback::Window(window) => Span::Time(window.micros()),
    }
}
