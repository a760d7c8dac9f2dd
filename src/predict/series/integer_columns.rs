//! Columns that have landed as integers, in files whose cells are of several types.

use anyhow::Context as _;
use feedline_schemas::config::DeclaredType;
use feedline_storage::{Store, StoreOptions};

use super::{FileReject, Landing};

impl Landing {
    /// The same file with floats in the columns that only `before` leaves open, where rows are rejected
    /// for a number with a fraction in a column of integers. It lands in a folder beside this one;
    /// `None` if there is no such column. Ingest makes a landed column of integers one of floats, too.
    pub(crate) fn with_floats(
        &self,
        before: &Self,
        rejects: &[FileReject],
    ) -> anyhow::Result<Option<Self>> {
        let is_open = |name: &str| {
            let source = before.config.source.first();
            let rules = source.and_then(|source| source.contract.column.get(name));
            rules.is_none_or(|rules| rules.r#type.is_none())
        };
        let mut floats = self.clone();
        let mut names = Vec::new();
        for source in &mut floats.config.source {
            for (name, rules) in &mut source.contract.column {
                let is_integer = rules.r#type == Some(DeclaredType::Int) && is_open(name);
                if is_integer && rejects.iter().any(|reject| reject.has_fraction(name)) {
                    rules.r#type = Some(DeclaredType::Float);
                    names.push(name.clone());
                }
            }
        }
        if names.is_empty() {
            return Ok(None);
        }
        let root = self.config.pipeline.root.as_ref();
        let root = root.context("a file lands in a folder of its own")?;
        let root = format!("{root}-floats");
        tracing::info!(
            file = %self.file,
            columns = %names.join(", "),
            "columns that landed as integers have numbers with a fraction: the file is read again with floats there"
        );
        floats.root = Store::open(&root, &StoreOptions::default())?;
        floats.config.pipeline.root = Some(root);
        Ok(Some(floats))
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    #[test]
    fn an_integer_column_is_of_floats_where_a_rejected_row_has_a_fraction_unless_it_is_declared() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        let landing = |columns: &str| {
            let text = format!(
                "[pipeline]\nname = \"p\"\nroot = \"{root}\"\n[[source]]\nname = \"s\"\ntype = \"files\"\n\
                 url = \"x.csv\"\n{columns}"
            );
            Landing {
                config: load("p", &text, &[]).unwrap().config,
                root: Store::open(root, &StoreOptions::default()).unwrap(),
                file: "x.csv".to_owned(),
            }
        };
        let declared = "contract.column.declared.type = \"int\"\n";
        let before = landing(declared);
        let typed = landing(&format!(
            "{declared}contract.column.a.type = \"int\"\ncontract.column.b.type = \"int\"\n"
        ));
        let none = [FileReject::of_row(r#"{"declared":"1.5","a":"x","b":3}"#)];
        assert!(typed.with_floats(&before, &none).unwrap().is_none());
        let one = [FileReject::of_row(r#"{"declared":1.5,"a":"1.5","b":"x"}"#)];
        let floats = typed.with_floats(&before, &one).unwrap().unwrap();
        let types = ["declared", "a", "b"].map(|name| {
            let contract = &floats.config.source[0].contract;
            contract.column[name].r#type
        });
        let (int, float) = (Some(DeclaredType::Int), Some(DeclaredType::Float));
        assert_eq!(types, [int, float, int]);
        assert_ne!(floats.config.pipeline.root, typed.config.pipeline.root);
    }
}
