//! The files of the records of a batch, for the details of rejects.

use feedline_schemas::commit::FilePart;

use super::rejects::Reject;

/// Names of files, with the number of the record after their last one.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordFiles(Vec<(u64, Option<String>)>);

impl RecordFiles {
    /// The files of a source at `url`: `parts`, in the order of their records. A file at `url`
    /// itself is the only one and needs no name.
    pub(super) fn of(url: &str, parts: &[FilePart]) -> Self {
        let mut end = 0;
        let files = parts.iter().map(|part| {
            end += part.records;
            (end, (part.url != url).then(|| below(url, &part.url)))
        });
        Self(files.collect())
    }

    /// Puts the name of the file of each reject before its details.
    pub(super) fn name_in(&self, rejects: &mut [Reject]) {
        for reject in rejects {
            let row = u64::from(reject.row);
            let at = self.0.partition_point(|(end, _)| *end <= row);
            let name = self.0.get(at).and_then(|(_, name)| name.as_deref());
            let Some(name) = name.map(|name| format!("`{name}`")) else {
                continue;
            };
            if !reject.detail.contains(&name) {
                reject.detail = format!("{name}: {}", reject.detail);
            }
        }
    }
}

/// The part of the URL of a file that is not in the URL of its source, from the last folder on that
/// both have.
fn below(source: &str, file: &str) -> String {
    let bytes = source.bytes().zip(file.bytes());
    let common = bytes.take_while(|(a, b)| a == b).count();
    let shared = file.get(..common).unwrap_or_default();
    let folder = shared.rfind('/').map_or(0, |slash| slash + 1);
    file[folder..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(url: &str, records: u64) -> FilePart {
        FilePart {
            url: url.into(),
            records,
        }
    }

    fn rejects(rows: &[u32]) -> Vec<Reject> {
        let reject = |row: &u32| Reject {
            row: *row,
            reason: "ragged_row",
            path: String::new(),
            detail: "line 3".into(),
            raw: String::new(),
        };
        rows.iter().map(reject).collect()
    }

    #[test]
    fn a_reject_names_its_file_where_the_source_may_have_several() {
        let check = |url: &str, parts: &[FilePart], expected: &[&str]| {
            let mut rejects = rejects(&[0, 2, 3, 5]);
            RecordFiles::of(url, parts).name_in(&mut rejects);
            let details: Vec<&str> = rejects.iter().map(|r| r.detail.as_str()).collect();
            assert_eq!(details, expected);
        };
        let two = [part("/data/in/jan.csv", 3), part("/data/in/feb.csv", 3)];
        let named = [
            "`jan.csv`: line 3",
            "`jan.csv`: line 3",
            "`feb.csv`: line 3",
            "`feb.csv`: line 3",
        ];
        check("/data/in/*.csv", &two, &named);
        check("/data/in/", &two, &named);
        check(
            "/data/in",
            &two[..1],
            &[
                "`in/jan.csv`: line 3",
                "`in/jan.csv`: line 3",
                "line 3",
                "line 3",
            ],
        );
        check(
            "/data/in/jan.csv",
            &[part("/data/in/jan.csv", 9)],
            &["line 3"; 4],
        );
        check("https://h/list", &[], &["line 3"; 4]);
    }

    #[test]
    fn details_that_have_the_name_stay() {
        let mut rejects = rejects(&[0]);
        rejects[0].detail = "member `x.csv` of `in/a.zip`: line 3".into();
        RecordFiles::of("in", &[part("in/a.zip", 1)]).name_in(&mut rejects);
        assert_eq!(rejects[0].detail, "member `x.csv` of `in/a.zip`: line 3");
    }
}
