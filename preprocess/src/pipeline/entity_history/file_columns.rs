//! Columns that a file of rows of a series must have: without one of them, its predictions would be made of
//! imputed values.

use std::collections::BTreeSet;

use feedline_schemas::transform::TransformArtefact;

use super::LandedRows;
use crate::{
    Error,
    operators::join::Join,
    pipeline::prepare::Build,
    schema::landed_columns::{self, lacks_columns},
    source::landing_zone::Landed,
};

impl Build<'_> {
    /// Columns that new rows must have: those of entity and time, the inputs of `artefact` that are neither
    /// joined nor made of earlier rows, those whose own value a feature reads, and the keys of joins. A
    /// target, which is not known yet, is one of them only as an input of windows.
    pub(super) fn columns_of_new(&self, artefact: &TransformArtefact) -> BTreeSet<&str> {
        let inputs = self.own_inputs(artefact);
        let keys = self.spec.joins.iter().flat_map(Join::needed);
        let read = self.columns_of_features(artefact, true);
        self.not_joined(inputs.chain(keys).chain(read))
    }

    /// Columns that the past must have: those of entity and time, those that features are made of, and, with
    /// windows, the inputs of `artefact` and the keys of joins as in new rows.
    fn columns_of_past(&self, artefact: &TransformArtefact) -> BTreeSet<&str> {
        let inputs = self.own_inputs(artefact);
        let keys = self.spec.joins.iter().flat_map(Join::needed);
        let has_windows = self.sequence().is_some();
        let of_windows = inputs.chain(keys).filter(move |_| has_windows);
        self.not_joined(of_windows.chain(self.columns_of_features(artefact, false)))
    }

    /// Checks that the rows of a history have the columns that the past must have, if its format lists its
    /// columns.
    ///
    /// # Errors
    /// As [`check_columns`].
    pub(super) fn check_history(
        &self,
        landed: &Landed,
        history: &LandedRows,
        artefact: &TransformArtefact,
    ) -> Result<(), Error> {
        check_columns(&self.columns_of_past(artefact), landed, history)?;
        Ok(())
    }

    /// The inputs of `artefact` that are not made of earlier rows.
    fn own_inputs<'a>(&'a self, artefact: &TransformArtefact) -> impl Iterator<Item = &'a str> {
        let inputs = self.spec.landed_inputs().map(|input| input.name.as_str());
        inputs.filter(move |name| is_input(artefact, name))
    }

    /// The columns that the features among the inputs of `artefact` are made of; with `read_itself`, only of
    /// those that read the row's own value.
    fn columns_of_features<'a>(
        &'a self,
        artefact: &TransformArtefact,
        read_itself: bool,
    ) -> impl Iterator<Item = &'a str> {
        let features = self.dataset.feature.iter();
        let features = features.filter(move |made| {
            is_input(artefact, &made.name) && (!read_itself || made.feature.sees_itself())
        });
        features.filter_map(|made| made.feature.column().map(String::as_str))
    }

    /// `names` and the columns of entity and time, without those that joins add.
    fn not_joined<'a>(&'a self, names: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
        let series = self.spec.series.iter();
        let order = series.flat_map(|series| {
            let time = std::iter::once(&series.time).chain(&series.clock);
            series.entity.iter().chain(time)
        });
        let mut all: BTreeSet<&str> = order.map(String::as_str).chain(names).collect();
        for joined in self.spec.joins.iter().flat_map(Join::brought) {
            all.remove(joined.name.as_str());
        }
        all
    }
}

/// Returns true if the transform reads a column of this name.
fn is_input(artefact: &TransformArtefact, name: &str) -> bool {
    artefact.inputs.iter().any(|input| input.name == name)
}

/// Checks that the file of `rows`, which are `landed`, has the `needed` columns, if its format lists its columns. Of
/// another format, the columns that no row has are returned.
///
/// # Errors
/// [`Error::Input`] for a file without one of them.
pub(super) fn check_columns(
    needed: &BTreeSet<&str>,
    landed: &Landed,
    rows: &LandedRows,
) -> Result<Vec<String>, Error> {
    let schemas = landed.generations.iter();
    let columns = landed_columns::merge(schemas.map(|generation| &generation.schema));
    let landed = columns.iter().map(|column| column.name.as_str());
    let rejected = rows.rejected_columns.iter().map(String::as_str);
    let known: BTreeSet<&str> = landed.chain(rejected).collect();
    let lacking: Vec<&str> = needed.difference(&known).copied().collect();
    if lacking.is_empty() || !rows.lists_columns {
        return Ok(lacking.into_iter().map(str::to_owned).collect());
    }
    let advice =
        "give all columns of the training data, with an empty cell where a value is missing";
    let known = known.into_iter();
    Err(lacks_columns(
        &rows.file,
        &lacking,
        needed.len(),
        known,
        advice,
    ))
}
