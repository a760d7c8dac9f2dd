//! Features that leak the target, looked for in some training rows before the write.

use std::{collections::BTreeSet, sync::Arc};

use arrow::{
    array::AsArray,
    datatypes::{DataType, Float64Type},
};
use feedline_schemas::{
    config::Task,
    report::Warning,
    transform::{FittedStep, TransformArtefact},
};

use crate::{
    Error,
    pipeline::prepare::Build,
    staging::Ordered,
    statistics::target_leakage::{self, Cells, Leak},
    steps, transform, warnings,
};

impl Build<'_> {
    /// Warns of features that give the target away in `sample`, some training rows. Those of series are made of the past, and a window that ends before the
    /// row of its target may well hold the target of its own rows.
    pub(in crate::pipeline) async fn target_leakage(
        &self,
        sample: &Arc<Vec<Ordered>>,
        artefact: &TransformArtefact,
    ) -> Result<Vec<Warning>, Error> {
        let is_ahead = self.sequence().is_some_and(|windows| windows.horizon > 0);
        if is_ahead || self.spec.target.is_none() {
            return Ok(Vec::new());
        }
        let series = self.spec.series.as_ref();
        let is_made = |name: &str| series.is_some_and(|series| series.makes(name));
        let names = artefact.inputs.iter().map(|input| input.name.as_str());
        let names: Vec<&str> = names.filter(|name| !is_made(name)).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let targets = self.spec.targets();
        let imputed = Arc::new(imputed_columns(artefact));
        let mut warnings = Vec::new();
        for target in targets {
            let of_target = names.iter().copied().chain([target.column.as_str()]);
            let all: Vec<String> = of_target.map(str::to_owned).collect();
            let (sample, imputed) = (Arc::clone(sample), Arc::clone(&imputed));
            let task = target.task;
            // It keeps a processor busy for a moment.
            let work = move || find(&all, &imputed, &sample, task);
            let found = tokio::task::spawn_blocking(work).await;
            warnings.extend(warnings::target_leakage(&target.column, &found??));
        }
        Ok(warnings)
    }
}

/// Numeric columns whose missing cells a step fills: a model sees them, as an indicator or as the same number.
fn imputed_columns(artefact: &TransformArtefact) -> BTreeSet<String> {
    let fills =
        |step: &&FittedStep| matches!(step, FittedStep::Impute { .. } | FittedStep::Knn { .. });
    let columns = artefact.steps.iter().filter(fills).flat_map(steps::columns);
    columns.map(|column| column.name().to_owned()).collect()
}

/// The leaks among the columns `names` of some rows; the last one is the target. Missing cells are compared of `imputed` columns.
fn find(
    names: &[String],
    imputed: &BTreeSet<String>,
    rows: &[Ordered],
    task: Task,
) -> Result<Vec<Leak>, Error> {
    let mut features = Vec::with_capacity(names.len());
    for name in names {
        features.push((name.clone(), cells_of(name, rows)?));
    }
    let Some((_, target)) = features.pop() else {
        return Ok(Vec::new());
    };
    let mut found = match (&target, task) {
        (Cells::Numbers(target), Task::Regression) => target_leakage::of_number(&features, target),
        (Cells::Texts(target), Task::Classification) => target_leakage::of_class(&features, target),
        _ => return Ok(Vec::new()),
    };
    let named = target_leakage::columns_of(&found);
    let missing = features.iter().filter_map(|(name, cells)| match cells {
        Cells::Numbers(cells) if imputed.contains(name) && !named.contains(name.as_str()) => {
            target_leakage::of_missing(name, cells, &target)
        }
        _ => None,
    });
    let missing: Vec<Leak> = missing.collect();
    found.extend(missing);
    Ok(found)
}

/// The cells of the column `name` in some rows.
pub(super) fn cells_of(name: &str, rows: &[Ordered]) -> Result<Cells, Error> {
    let (mut numbers, mut texts) = (Vec::new(), Vec::new());
    for part in rows {
        if let Some(place) = part.numbers.place(name) {
            let mut cells = Vec::new();
            part.numbers
                .fill(place, 0..part.rows.num_rows(), &mut cells);
            numbers.append(&mut cells);
            continue;
        }
        let column = part.rows.column_by_name(name).ok_or_else(|| {
            Error::input(
                "the training rows",
                format!("they have no column `{name}`"),
                "this is a bug in feedline: report it",
            )
        })?;
        match column.data_type() {
            DataType::Float64 => {
                numbers.extend(transform::cells(column.as_primitive::<Float64Type>()));
            }
            _ => {
                let column = column.as_string_opt::<i32>();
                let cells = column.into_iter().flatten();
                texts.extend(cells.map(|cell| cell.map(str::to_owned)));
            }
        }
    }
    Ok(match texts.is_empty() {
        true => Cells::Numbers(numbers),
        false => Cells::Texts(texts),
    })
}
