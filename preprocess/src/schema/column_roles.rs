//! Role of each landed column in the dataset: the configuration resolved against the landed
//! columns.

mod no_effect;
mod other_use;

use std::{collections::BTreeSet, sync::Arc};

use feedline_schemas::{
    config::{
        Categories, DatasetConfig, DatasetKind, Fraction, Impute, Standardize, Step, StepConfig,
        Task, Winsorize,
    },
    record::ColumnType,
    transform::{InputColumn, InputKind},
};

use crate::{
    Error,
    fit::{TargetSpec, class_order, kind_of},
    operators::{
        content_column::{self, ContentColumn, ContentKind},
        dedup::{conflicts, near},
        document,
        images::Images,
        number_format, passthrough_columns, split,
        time_series::{self, Series},
    },
    schema::{
        dataset_spec::{DatasetSpec, Input},
        landed_columns::{MergedColumn, find},
        system_columns::check_reserved,
    },
};

pub(crate) use self::other_use::columns_in_other_use;

/// Default of `dataset.max_reject_fraction`.
pub const MAX_REJECT_FRACTION: f64 = 0.05;

/// Resolves `config` against the landed columns, those that joins bring included.
pub(crate) fn resolve(
    config: &DatasetConfig,
    columns: &[MergedColumn],
) -> Result<DatasetSpec, Error> {
    check_numbers(config)?;
    let series = time_series::resolve(config, columns)?.map(Arc::new);
    let all = with_made(columns, series.as_deref());
    check_names(config, &all)?;
    conflicts::check(config, columns)?;
    let payload = content_column::resolve(config, columns)?;
    let rule = split::resolve(config, columns)?;
    let kept = passthrough_columns::resolve(config, columns)?;
    let parts = content_column::parts(config, columns)?;
    let mut held = payload.iter().chain(&parts);
    split::check_images(&config.split, held.clone())?;
    let document = held.find(|payload| payload.kind == ContentKind::Text);
    document::check(config, document)?;
    let near_dup = near::resolve(config, columns, document)?;
    let mut targets = targets(config, columns)?.into_iter();
    let (target, other_targets) = (targets.next(), targets.collect());
    let (mut inputs_found, mut steps) = (Vec::new(), Vec::new());
    if payload.is_none() {
        steps = config.step.clone().unwrap_or_else(default_steps);
        inputs_found = inputs(config, &steps, &all, &parts, series.as_deref())?;
        no_effect::check_categories(config, &inputs_found)?;
        steps = resolve_steps(steps, config.step.is_some(), &inputs_found)?;
        check_encodings(config.step.as_deref().unwrap_or_default(), target.is_some())?;
    }
    let mut config = config.clone();
    config.step = Some(steps.clone());
    Ok(DatasetSpec {
        payload,
        parts,
        near_dup,
        series,
        joins: Vec::new(),
        inputs: inputs_found,
        target,
        other_targets,
        requires_target: true,
        steps,
        max_reject_fraction: config
            .max_reject_fraction
            .map_or(MAX_REJECT_FRACTION, Fraction::get),
        rule,
        kept,
        expect: None,
        config,
    })
}

/// The landed columns and those that are made of them.
fn with_made(columns: &[MergedColumn], series: Option<&Series>) -> Vec<MergedColumn> {
    let made = series.into_iter().flat_map(Series::made);
    let made = made.map(|name| MergedColumn {
        name: name.to_owned(),
        r#type: ColumnType::Float64,
    });
    columns.iter().cloned().chain(made).collect()
}

/// Checks the values that need no columns.
pub(crate) fn check_numbers(config: &DatasetConfig) -> Result<(), Error> {
    number_format::check(config)?;
    let has_features = config.kind.is_rows() || config.kind == DatasetKind::Multi;
    if config.max_missing_fraction.is_some() && !has_features {
        return Err(Error::config(
            "dataset.max_missing_fraction",
            "rows of this kind have no features of numbers or categories, remove this key",
        ));
    }
    if config.missing_values.iter().any(|v| !v.is_finite()) {
        return Err(Error::config(
            "dataset.missing_values",
            "write finite numbers; NaN is always missing",
        ));
    }
    check_roles(config)
}

/// Checks that no list names a column twice, and that no column is in two roles that exclude each other.
fn check_roles(config: &DatasetConfig) -> Result<(), Error> {
    for (key, names) in named_lists(config) {
        let mut seen = BTreeSet::new();
        if let Some(name) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(Error::config(key, format!("`{name}` is listed twice")));
        }
    }
    no_effect::check_dropped(config)?;
    no_effect::check_listed_twice(config)?;
    time_series::check_entity_roles(config)?;
    conflicts::check_keys(config)?;
    split::check_key(config)?;
    let targets = config.targets().iter();
    let mut history = targets.filter(|target| config.features.contains(target));
    history.try_for_each(|target| check_history(config, target))
}

/// Lists of columns in the configuration, each with its key.
fn named_lists(config: &DatasetConfig) -> impl Iterator<Item = (String, &[String])> {
    let lists: [(&str, &[String]); 7] = [
        ("dataset.target", config.targets()),
        ("dataset.features", &config.features),
        ("dataset.drop", &config.drop),
        ("dataset.categorical", &config.categorical),
        ("dataset.split.key", &config.split.key),
        ("dataset.passthrough", &config.passthrough),
        ("dataset.dedup_ignore", &config.dedup_ignore),
    ];
    let lists = lists.map(|(key, names)| (key.to_owned(), names));
    let steps = config.step.iter().flatten().enumerate();
    let steps = steps.flat_map(|(i, step)| {
        let by = step.by().map_or(&[][..], std::slice::from_ref);
        let columns = step.columns.as_slice();
        [
            (format!("dataset.step.{i}.columns"), columns),
            (format!("dataset.step.{i}.by"), by),
        ]
    });
    lists.into_iter().chain(steps)
}

/// Checks that every column that the configuration names exists.
fn check_names(config: &DatasetConfig, columns: &[MergedColumn]) -> Result<(), Error> {
    for (key, names) in named_lists(config) {
        for name in names {
            find(&key, name, columns)?;
        }
    }
    Ok(())
}

fn targets(config: &DatasetConfig, columns: &[MergedColumn]) -> Result<Vec<TargetSpec>, Error> {
    let Some(targets) = &config.target else {
        let orphan = [
            ("dataset.task", config.task == Task::Classification),
            ("dataset.scale_target", config.scale_target.is_some()),
            ("dataset.classes", !config.classes.is_empty()),
        ];
        return match orphan.into_iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(Error::config(
                key,
                "it says how to treat the target, but `dataset.target` is absent",
            )),
            None => Ok(Vec::new()),
        };
    };
    if targets.names().is_empty() {
        let reason = "it lists no column; name one, or remove this key for shards without a target";
        return Err(Error::config(TARGET, reason));
    }
    if targets.names().len() > 1 {
        check_several(config)?;
    }
    let targets = targets.names().iter();
    targets.map(|name| target(config, name, columns)).collect()
}

/// Checks that several targets are numbers, and that no key chooses rows or makes features by one of them.
///
/// # Errors
/// [`Error::Config`] for the first key that needs one target.
fn check_several(config: &DatasetConfig) -> Result<(), Error> {
    let steps = config.step.iter().flatten();
    let encoding = steps.enumerate().find(|(_, step)| step.is_of_target());
    let reasons = [
        (
            config.task == Task::Classification,
            "dataset.task".to_owned(),
            "`dataset.target` lists several columns, and a model of several targets predicts numbers; name one column for \
             classes, or remove this key",
        ),
        (
            !config.kind.is_rows(),
            TARGET.to_owned(),
            "several targets are for rows of numbers and categories (`kind = \"rows\"`); name one column",
        ),
        (
            config.conflicts.is_some(),
            "dataset.conflicts".to_owned(),
            "rows that are equal but for one of several targets are no conflict of one label; remove this key, or name one \
             target",
        ),
        (
            config.sequence.as_ref().is_some_and(|s| s.season.is_some()),
            "dataset.sequence.season".to_owned(),
            "naive forecasts are made of one target, and `dataset.target` lists several; remove this key",
        ),
        (
            encoding.is_some(),
            format!("dataset.step.{}.encoding", encoding.map_or(0, |(i, _)| i)),
            "`target` encodes categories by what one target is like, and `dataset.target` lists several; use `frequency`",
        ),
    ];
    match reasons.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, key, reason)) => Err(Error::config(key, reason)),
        None => Ok(()),
    }
}

const TARGET: &str = "dataset.target";

/// Checks that a target listed as a feature is history: a window that ends before the row of its
/// target may hold earlier values of it.
///
/// # Errors
/// [`Error::Config`] where the target would leak into the features.
fn check_history(config: &DatasetConfig, name: &str) -> Result<(), Error> {
    let which = match config.targets().len() {
        1 => "the target",
        _ => "one of the targets",
    };
    let refuse = |key: &str, reason: String| Err(Error::config(key, reason));
    match &config.sequence {
        None => refuse(
            "dataset.features",
            format!("`{name}` is {which}, a model would be given the answer; remove it"),
        ),
        Some(windows) if windows.horizon.is_some_and(|horizon| *horizon == 0) => refuse(
            "dataset.features",
            format!(
                "`{name}` is {which}, and with `dataset.sequence.horizon = 0` a window ends with the row that is predicted, so a \
                 model would be given the answer; set the horizon to 1 or more, or remove it"
            ),
        ),
        Some(_) if config.task == Task::Classification => refuse(
            "dataset.features",
            format!(
                "`{name}` is {which}, and windows hold the past of targets that are numbers only; remove it"
            ),
        ),
        Some(_) if config.categorical.iter().any(|category| category == name) => refuse(
            "dataset.categorical",
            format!(
                "`{name}` is {which} and a number to predict, so its past is a number in windows, too; remove it here"
            ),
        ),
        Some(_) => Ok(()),
    }
}

fn target(
    config: &DatasetConfig,
    name: &str,
    columns: &[MergedColumn],
) -> Result<TargetSpec, Error> {
    let column = find(TARGET, name, columns)?;
    if config.features.iter().any(|feature| feature == name) {
        check_history(config, name)?;
    }
    let unfit = match column.r#type {
        ColumnType::Null => Some("holds no value in any row"),
        ColumnType::Json => Some("holds lists"),
        list if list.is_list() => Some("holds lists"),
        ColumnType::Binary => Some("holds bytes"),
        _ => None,
    };
    if let Some(what) = unfit {
        return Err(Error::config(
            TARGET,
            format!("column `{name}` {what}, so it cannot be a target"),
        ));
    }
    check_reserved(TARGET, name)?;
    let scale = config
        .scale_target
        .unwrap_or(config.task == Task::Regression);
    if scale && config.task == Task::Classification {
        return Err(Error::config(
            "dataset.scale_target",
            "class ids are not scaled, remove this key",
        ));
    }
    Ok(TargetSpec {
        column: name.to_owned(),
        task: config.task,
        scale,
        classes: class_order::listed(config)?,
    })
}

fn inputs(
    config: &DatasetConfig,
    steps: &[StepConfig],
    columns: &[MergedColumn],
    parts: &[ContentColumn],
    series: Option<&Series>,
) -> Result<Vec<Input>, Error> {
    let mut inputs = Vec::new();
    let beside = |part: &ContentColumn, name: &str| {
        let mut beside = part.images.iter().flat_map(Images::beside);
        beside.any(|(column, _)| column == name)
    };
    let is_part = |name: &String| {
        let mut parts = parts.iter();
        parts.any(|part| part.column == *name || beside(part, name))
    };
    if let Some(name) = config.features.iter().find(|name| is_part(name)) {
        let reason = format!(
            "`{name}` is the image or the text of the rows, or belongs to the image; remove it"
        );
        return Err(Error::config("dataset.features", reason));
    }
    let in_order: Vec<&MergedColumn> = if config.features.is_empty() {
        let all = columns.iter();
        all.filter(|column| !is_part(&column.name)).collect()
    } else {
        config
            .features
            .iter()
            .map(|name| find("dataset.features", name, columns))
            .collect::<Result<_, _>>()?
    };
    let listed = |column: &MergedColumn| config.features.contains(&column.name);
    // What is made is made to be a feature, whatever list there is of those that landed.
    let made = columns.iter().filter(|&column| {
        let is_made = series.is_some_and(|series| series.makes(&column.name));
        is_made && !config.features.is_empty() && !listed(column)
    });
    for column in in_order.into_iter().chain(made) {
        let asked = asks_for(config, steps, column);
        if series.is_some_and(|series| series.is_time(&column.name)) && !listed(column) {
            continue;
        }
        if let Some(kind) = input_kind(config, column, &asked)? {
            let by_default = config.features.is_empty() && asked.kind.is_none();
            check_reserved("dataset.drop", &column.name)?;
            inputs.push(Input {
                column: InputColumn {
                    name: column.name.clone(),
                    kind,
                },
                by_default,
            });
        }
    }
    if inputs.is_empty() && parts.is_empty() {
        let windows = config.sequence.as_ref();
        let has_horizon =
            windows.is_some_and(|windows| windows.horizon.is_none_or(|horizon| *horizon > 0));
        let history = config.targets().first().filter(|_| has_horizon);
        let history = history.map_or_else(String::new, |target| {
            format!("; windows may hold the past of the target: `features = [\"{target}\"]`")
        });
        return Err(other_use::no_feature_left(config, &history));
    }
    Ok(inputs)
}

/// Kind of one column in the configuration, and the key that sets it.
struct Asked {
    kind: Option<InputKind>,
    conflict: Option<String>,
}

fn asks_for(config: &DatasetConfig, steps: &[StepConfig], column: &MergedColumn) -> Asked {
    let listed = |(i, step): (usize, &StepConfig)| {
        let kind = kind_of(step);
        let groups = step.by() == Some(&column.name);
        let listed = step.columns.contains(&column.name);
        let listed = listed.then(|| (format!("dataset.step.{i}.columns"), kind));
        let groups = groups.then(|| (format!("dataset.step.{i}.by"), InputKind::Categorical));
        listed.into_iter().chain(groups)
    };
    let mut kinds = config
        .categorical
        .contains(&column.name)
        .then(|| ("dataset.categorical".to_owned(), InputKind::Categorical))
        .into_iter()
        .chain(steps.iter().enumerate().flat_map(listed));
    let first = kinds.next();
    let conflict = first
        .as_ref()
        .and_then(|(_, kind)| kinds.find(|(_, other)| other != kind))
        .map(|(key, _)| key);
    Asked {
        kind: first.map(|(_, kind)| kind),
        conflict,
    }
}

/// The column's kind as a feature, or `None` when it is none.
fn input_kind(
    config: &DatasetConfig,
    column: &MergedColumn,
    asked: &Asked,
) -> Result<Option<InputKind>, Error> {
    let name = &column.name;
    if let Some(key) = &asked.conflict {
        return Err(Error::config(
            key,
            format!(
                "`{name}` is read as a number in one place and as a category in another, choose one"
            ),
        ));
    }
    // Of a target that is listed as a feature it is known that windows hold its past only.
    let is_history = config.is_target(name) && config.features.contains(name);
    if config.is_target(name) && !is_history || config.drop.contains(name) {
        return Ok(None);
    }
    let explicit = config.features.contains(name) || asked.kind.is_some();
    let split = &config.split;
    let named = [split.column(), split.time()];
    let aside = split.key.contains(name) || config.passthrough.contains(name);
    if !explicit && (aside || named.contains(&Some(name))) {
        return Ok(None);
    }
    match column.r#type {
        ColumnType::Null if explicit => Err(Error::config(
            "dataset.features",
            format!("column `{name}` holds no value in any row, leave it out"),
        )),
        lists if explicit && (lists == ColumnType::Json || lists.is_list()) => Err(Error::config(
            "dataset.features",
            format!("column `{name}` holds lists, which cannot be features yet; leave it out"),
        )),
        ColumnType::Binary if explicit => Err(Error::config(
            "dataset.features",
            format!("column `{name}` holds bytes, which are no features; leave it out"),
        )),
        ColumnType::Null
        | ColumnType::Json
        | ColumnType::Binary
        | ColumnType::List
        | ColumnType::ListBool
        | ColumnType::ListInt64
        | ColumnType::ListFloat64
        | ColumnType::ListUtf8 => {
            tracing::info!(column = %name, r#type = ?column.r#type, "column is not a feature: it holds no numbers or text");
            Ok(None)
        }
        ColumnType::Utf8 | ColumnType::Timestamp if is_history => Ok(Some(InputKind::Numeric)),
        ColumnType::Utf8 | ColumnType::Timestamp => {
            Ok(Some(asked.kind.unwrap_or(InputKind::Categorical)))
        }
        ColumnType::Bool | ColumnType::Int64 | ColumnType::Float64 | ColumnType::Decimal => {
            Ok(Some(asked.kind.unwrap_or(InputKind::Numeric)))
        }
    }
}

fn default_steps() -> Vec<StepConfig> {
    [
        Step::Impute(Impute::default()),
        Step::Winsorize(Winsorize::default()),
        Step::Standardize(Standardize::default()),
        Step::Categories(Categories::default()),
    ]
    .map(|step| StepConfig::new(step, Vec::new()))
    .to_vec()
}

/// Lists every step's columns; categories no step encodes are encoded by one at the end.
fn resolve_steps(
    steps: Vec<StepConfig>,
    given: bool,
    inputs: &[Input],
) -> Result<Vec<StepConfig>, Error> {
    let of_kind = |kind: InputKind| {
        inputs
            .iter()
            .map(|i| &i.column)
            .filter(move |c| c.kind == kind)
            .map(|c| c.name.clone())
    };
    let mut encoded: BTreeSet<String> = BTreeSet::new();
    let mut resolved = Vec::new();
    for (i, mut step) in steps.into_iter().enumerate() {
        let key = |field: &str| format!("dataset.step.{i}.{field}");
        if let Some(name) = step
            .columns
            .iter()
            .find(|name| !inputs.iter().any(|input| input.column.name == **name))
        {
            return Err(Error::config(
                key("columns"),
                format!(
                    "`{name}` is not a feature of this dataset (see `dataset.features`, `dataset.drop`)"
                ),
            ));
        }
        let is_input = |by: &&String| inputs.iter().any(|input| input.column.name == **by);
        if let Some(by) = step.by().filter(|by| !is_input(by)) {
            return Err(Error::config(
                key("by"),
                format!(
                    "`{by}` is not a feature of this dataset, so a row to predict may lack its group; take it out of \
                     `dataset.drop`, or list it in `dataset.features`"
                ),
            ));
        }
        if step.columns.is_empty() {
            step.columns = of_kind(kind_of(&step))
                .filter(|name| !encoded.contains(name))
                .collect();
        }
        if step.is_categories() {
            for name in &step.columns {
                if !encoded.insert(name.clone()) {
                    return Err(Error::config(
                        key("columns"),
                        format!("`{name}` is already encoded by an earlier step"),
                    ));
                }
            }
        }
        if !step.columns.is_empty() {
            resolved.push(step);
        }
    }
    let rest: Vec<String> = of_kind(InputKind::Categorical)
        .filter(|name| !encoded.contains(name))
        .collect();
    if !rest.is_empty() {
        if given {
            tracing::info!(columns = ?rest, "no step encodes these categories, those that become features are one-hot");
        }
        let encode = Step::Categories(Categories::default());
        resolved.push(StepConfig::new(encode, rest));
    }
    Ok(resolved)
}

/// A category can only become what the target is like where there is one.
fn check_encodings(steps: &[StepConfig], has_target: bool) -> Result<(), Error> {
    let of_target = steps.iter().position(StepConfig::is_of_target);
    match of_target.filter(|_| !has_target) {
        Some(i) => Err(Error::config(
            format!("dataset.step.{i}.encoding"),
            "`target` encodes categories by what the target is like, but `dataset.target` is absent; name it, or use \
             `frequency`",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
