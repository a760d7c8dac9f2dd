//! Warning of cells of new rows that do not fit their columns, where the dataset does not need the
//! columns.

use std::collections::BTreeSet;

use feedline_schemas::{
    config::{ContractConfig, PipelineConfig, TypeContract},
    count::counted,
    report::{SourceReport, WarnedColumn, Warning},
};

use super::own_source;
use crate::output::shown_columns;

/// Warning of such cells in the file that `landed` reports: their rows are predicted, and ingest would
/// reject them. `None` if there are none, or if ingest would land the rows, too.
pub(crate) fn unneeded_cells_warning(
    landed: &SourceReport,
    config: &PipelineConfig,
    needed: &BTreeSet<String>,
) -> Option<Warning> {
    let own = own_source(config).map(|own| own.contract.clone());
    let contract: ContractConfig = own.unwrap_or_default();
    let is_rejected = |name: &str| {
        let types = contract.column.get(name).and_then(|rules| rules.types);
        let types = types.unwrap_or(contract.types);
        matches!(types, TypeContract::QuarantineRow | TypeContract::Freeze)
    };
    let nulled = landed.decisions.get("nulled").into_iter().flatten();
    let unneeded = nulled.filter(|(name, _)| !needed.contains(*name) && is_rejected(name));
    let (mut cells, mut columns) = (0, Vec::new());
    for (name, noted) in unneeded {
        cells += noted.count;
        let found = format!("{}, {}", noted.count, noted.sample);
        columns.push(WarnedColumn::with_found(name, found));
    }
    let are = match cells {
        0 => return None,
        1 => "is",
        _ => "are",
    };
    let message = format!(
        "{} of columns that the dataset does not need {are} not of the type that landed: {}; their rows are predicted, and \
         later rows have them as their past, while a build has no such rows; correct the cells, or let the contract land \
         them as null (`null_value`)",
        counted(cells, "cell"),
        shown_columns(&columns).join(", ")
    );
    let warning = Warning::new("unneeded_cells", message).with_key("source.contract.types");
    Some(warning.with_columns(columns))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use feedline_schemas::{commit::Noted, config::load};

    use super::*;

    #[test]
    fn cells_that_reject_rows_in_ingest_alone_are_counted() {
        let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"x.csv\"\n\
            contract.column.null.types = \"null_value\"\n";
        let config = load("p", text, &[]).unwrap().config;
        let noted = |count| Noted {
            count,
            sample: "`n/k`".to_owned(),
        };
        let nulled = [("null", 1), ("needed", 2), ("note", 3)];
        let nulled = nulled.map(|(name, count)| (name.to_owned(), noted(count)));
        let landed = SourceReport {
            decisions: BTreeMap::from([("nulled".to_owned(), BTreeMap::from(nulled))]),
            ..SourceReport::default()
        };
        let needed = BTreeSet::from(["needed".to_owned()]);
        let warning = unneeded_cells_warning(&landed, &config, &needed).unwrap();
        assert_eq!(warning.code, "unneeded_cells");
        let begin = "3 cells of columns that the dataset does not need are not of the type that landed: `note` (3, `n/k`);";
        assert!(warning.message.starts_with(begin), "{}", warning.message);
        assert!(warning.is_about("note") && !warning.is_about("needed"));
        let all = BTreeSet::from(["needed", "note"].map(str::to_owned));
        assert_eq!(unneeded_cells_warning(&landed, &config, &all), None);
    }
}
