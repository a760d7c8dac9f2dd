//! `index.html` in the folder of runs: all of them, newest first, with links to their reports.

use std::collections::BTreeMap;

use feedline_report::{TableRow, document, escape, link, table_of};
use feedline_schemas::{
    count::counted,
    ids::Hash128,
    manifest::report_path,
    run::{RunRecord, RunState},
};
use feedline_storage::Store;

use super::{links::relative, paths::REPORT_PATH, timestamp::moment};
use crate::{
    error::Error,
    evaluation::metrics::{Metrics, metric},
    reporting::runs,
};

/// Path in the folder of runs.
pub(crate) const PATH: &str = "index.html";

/// Runs that are listed.
const LISTED: usize = 1000;

/// Writes the index of the runs in a folder, as seen at `now_ms`. Datasets are linked where `dataset` has their report.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn write(folder: &Store, dataset: &Store, now_ms: u64) -> Result<(), Error> {
    let records = runs::reached(folder, now_ms).await?;
    let mut datasets = BTreeMap::new();
    for record in &records {
        if record.dataset != dataset.url() || datasets.contains_key(&record.fingerprint) {
            continue;
        }
        let path = report_path(record.fingerprint);
        if dataset.size(&path).await.is_ok()
            && let Some(link) = relative(&folder.url(), &dataset.url_of(&path))
        {
            datasets.insert(record.fingerprint, link);
        }
    }
    let page = page(&records, &datasets, now_ms);
    Ok(folder.put(PATH, page.into_bytes().into()).await?)
}

fn page(records: &[RunRecord], datasets: &BTreeMap<Hash128, String>, now_ms: u64) -> String {
    let (pruned, others): (Vec<_>, Vec<_>) =
        records.iter().partition(|r| r.state == RunState::Pruned);
    let mut body = "<h1>Runs</h1>\n".to_owned();
    body += &format!(
        "<p class=\"quiet\">{}, newest first. The page is written at the end of each training.</p>\n",
        counted(others.len() as u64, "run")
    );
    let caption = "Metrics of the kept weights on the validation and the test split.";
    body += &list(caption, &others, datasets, now_ms);
    if !pruned.is_empty() {
        body += &format!(
            "<details><summary>{} that a search stopped early</summary>\n{}</details>\n",
            counted(pruned.len() as u64, "trial"),
            list("Pruned trials.", &pruned, datasets, now_ms)
        );
    }
    document("Runs", &body)
}

fn list(
    caption: &str,
    records: &[&RunRecord],
    datasets: &BTreeMap<Hash128, String>,
    now_ms: u64,
) -> String {
    let row = |record: &&RunRecord| TableRow::new(cells(record, datasets, now_ms));
    let rows: Vec<TableRow> = records.iter().take(LISTED).map(row).collect();
    let head = [
        "run",
        "state",
        "started",
        "dataset",
        "epochs",
        "validation loss",
        "validation",
        "test",
    ];
    let mut out = table_of(caption, &head, 1.., &rows);
    if records.len() > LISTED {
        let more = counted((records.len() - LISTED) as u64, "older run");
        out += &format!("<p class=\"quiet\">Not listed: {more}.</p>\n");
    }
    out
}

/// Cells of a run, as HTML.
fn cells(record: &RunRecord, datasets: &BTreeMap<Hash128, String>, now_ms: u64) -> Vec<String> {
    let best = record.best.as_ref();
    let of = |metrics: &Metrics| {
        let main = runs::MAIN.into_iter().find_map(|name| {
            let value = metric(*metrics.get(name)?);
            Some(format!("{value} {name}"))
        });
        main.unwrap_or_else(|| "-".to_owned())
    };
    let fingerprint = format!("<code>{}</code>", record.fingerprint.short());
    vec![
        relative("runs", &format!("runs/{}/{REPORT_PATH}", record.name))
            .map_or_else(|| escape(&record.name), |to| link(&to, &record.name)),
        record.state_at(now_ms).as_str().to_owned(),
        moment(record.started_ms),
        match datasets.get(&record.fingerprint) {
            Some(to) => format!("<a href=\"{}\">{fingerprint}</a>", escape(to)),
            None => fingerprint,
        },
        record.epochs.to_string(),
        best.map_or_else(|| "-".to_owned(), |best| metric(best.loss)),
        best.map_or_else(|| "-".to_owned(), |best| of(&best.metrics)),
        of(&record.test),
    ]
}

#[cfg(test)]
mod tests {
    use feedline_schemas::encode;

    use super::*;
    use crate::{checkpoint::run_folder::runtime, testing::record};

    #[test]
    fn runs_are_listed_newest_first_with_links_and_pruned_trials_apart() {
        let place = tempfile::tempdir().unwrap();
        let url = place.path().display().to_string();
        let root = Store::open(&url, &feedline_storage::StoreOptions::default()).unwrap();
        let (folder, dataset) = (root.child("train"), root.child("dataset"));
        let [mut old, mut new, mut pruned] = ["aa11", "bb22", "cc33"].map(record);
        (old.started_ms, new.started_ms, pruned.started_ms) = (10, 20, 30);
        (pruned.state, new.test) = (RunState::Pruned, Metrics::new());
        for record in [&mut old, &mut new, &mut pruned] {
            record.dataset = dataset.url();
        }
        old.fingerprint = Hash128::new(7 << 100);
        let page = runtime().unwrap().block_on(async {
            for record in [&old, &new, &pruned] {
                let path = format!("{}/run.json", record.name);
                folder.put(&path, encode(record).into()).await.unwrap();
            }
            let path = report_path(new.fingerprint);
            dataset.put(&path, "page".into()).await.unwrap();
            write(&folder, &dataset, 1_000).await.unwrap();
            folder.get(PATH).await.unwrap()
        });
        let page = String::from_utf8(page.to_vec()).unwrap();
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        let links = ["bb22", "aa11", "cc33"]
            .map(|name| at(&format!("<a href=\"{name}/report.html\">{name}</a>")));
        assert!(links.is_sorted() && at("stopped early") < links[2]);
        assert!(
            page.contains("1.9000 rmse") && page.contains("2 rmse"),
            "{page}"
        );
        assert_eq!(page.matches(&report_path(new.fingerprint)).count(), 2);
        assert!(!page.contains(&report_path(old.fingerprint)));
        assert!(!page.contains("http") && !page.contains("<script"));
    }
}
