//! Columns of another type than before: those that the dataset does not read, and those that it reads.

use super::*;

/// Returns true first if `dataset` has the settings of the manifest `built`, and then if a build keeps the dataset.
async fn built_and_kept(root: &Store, dataset: &str, built: &Manifest) -> (bool, bool) {
    let (context, _scratch) = context(root, 2);
    let config = pipeline(dataset);
    (
        is_built_by(&config, built, &context).await.unwrap(),
        is_kept_by(&config, built, &context).await.unwrap(),
    )
}

/// Rows as [`row`] has them, the column at each of `places` as text.
fn as_text(range: Range<u64>, places: &[usize]) -> Vec<Cells> {
    let text = |i: u64| {
        let mut cells = row(i);
        for place in places {
            let cell = &mut cells[*place];
            *cell = json!((!cell.is_null()).then(|| cell.to_string()));
        }
        cells
    };
    range.map(text).collect()
}

#[tokio::test]
async fn a_dropped_column_of_another_type_lets_rows_be_appended() {
    for dataset in [
        DATASET,
        "sources = [\"a\"]\ntarget = \"price\"\nfeatures = [\"size\", \"kind\"]\n",
    ] {
        let root = Store::memory();
        let mut zone = market(&root).await;
        build_with(&root, dataset, 2).await.unwrap();
        let before = manifest(&root).await;
        let mut columns = COLUMNS;
        columns[0].1 = Utf8;
        zone.evolve(&columns);
        zone.batch(&as_text(600..900, &[0])).await;
        let report = build_with(&root, dataset, 2).await.unwrap();
        assert_eq!(report.added.unwrap().rows_in, 300, "{:?}", report.anew);
        assert_eq!(manifest(&root).await.transform, before.transform);
        check(&root).await;
    }
}

#[tokio::test]
async fn columns_that_the_dataset_reads_are_named_with_their_types() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let mut columns = COLUMNS.to_vec();
    (columns[0].1, columns[1].1) = (Utf8, Utf8);
    columns.push(("late", Bool));
    zone.evolve(&columns);
    let mut rows = as_text(600..900, &[0, 1]);
    rows.iter_mut().for_each(|row| row.push(json!(true)));
    zone.batch(&rows).await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!(
        report.anew.as_deref(),
        Some(
            "columns are new, or of another type than before: `size` (numbers before, text now), `late` (new)"
        )
    );
}

#[tokio::test]
async fn a_dataset_is_kept_until_a_column_lands_that_it_reads() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let built = manifest(&root).await;
    let other = format!("{DATASET}dedup = \"none\"\n");
    assert_eq!(built_and_kept(&root, DATASET, &built).await, (true, true));
    assert_eq!(built_and_kept(&root, &other, &built).await, (false, false));
    zone.batch(&rows(600..700)).await;
    assert_eq!(built_and_kept(&root, DATASET, &built).await, (true, true));
    let mut columns = COLUMNS.to_vec();
    columns.push(("late", Bool));
    zone.evolve(&columns);
    let mut rows = rows(700..800);
    rows.iter_mut().for_each(|row| row.push(json!(true)));
    zone.batch(&rows).await;
    assert_eq!(built_and_kept(&root, DATASET, &built).await, (true, false));
}

#[tokio::test]
async fn a_dataset_whose_rows_could_change_their_split_is_kept_until_rows_land() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    let dataset = format!("{DATASET}split = {{ by = \"range\" }}\n");
    build_with(&root, &dataset, 2).await.unwrap();
    let built = manifest(&root).await;
    assert_eq!(built_and_kept(&root, &dataset, &built).await, (true, true));
    zone.batch(&rows(600..700)).await;
    assert_eq!(built_and_kept(&root, &dataset, &built).await, (true, false));
}
