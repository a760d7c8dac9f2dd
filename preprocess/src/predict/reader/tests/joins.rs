//! Rows without the columns that joins add: the same features and reasons as in the build.

use feedline_schemas::{config::load, manifest::Manifest, report::PredictedJoin};

use super::*;
use crate::{Context, RowJoins, build, row_joins, testing::context};

/// Rows of source `a`.
const ROWS: u32 = 300;

const JOINS: &str = "[pipeline]\nname = \"p\"\n\
    [[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"x.csv\"\n\
    [[source]]\nname = \"shops\"\ntype = \"files\"\nurl = \"x.csv\"\n\
    [[source]]\nname = \"kinds\"\ntype = \"files\"\nurl = \"x.csv\"\n\
    [[source]]\nname = \"prices\"\ntype = \"files\"\nurl = \"x.csv\"\n\
    [[source]]\nname = \"labels\"\ntype = \"files\"\nurl = \"x.csv\"\n\
    [dataset]\ntarget = \"y\"\ndrop = [\"at\", \"id\"]\nmax_reject_fraction = 1.0\nmax_missing_fraction = 0.25\n\
    join = [\n\
    { source = \"shops\", left = \"shop\", right = \"name\" },\n\
    { source = \"kinds\", left = \"kind\", right = \"name\", unmatched = \"null\" },\n\
    { source = \"prices\", left = \"shop\", match = \"asof\", time = { column = \"at\" }, right_time = { column = \"from\", unit = \"s\" }, \
      tolerance = \"5h\", prefix = \"p_\", age = \"age\", unmatched = \"drop\" },\n\
    { source = \"labels\", left = \"id\" },\n]\n";

/// Features of a row once it is joined.
const INPUTS: [&str; 7] = ["shop", "size", "kind", "area", "rank", "p_price", "age"];

/// A dataset of joined rows.
struct Joined {
    runtime: tokio::runtime::Runtime,
    context: Context,
    _scratch: tempfile::TempDir,
    manifest: Manifest,
    transform: Transform,
    /// Features of the rows by number.
    x: BTreeMap<u64, Vec<f32>>,
    counts: Vec<PredictedJoin>,
}

/// Time of row `i`, in hours since the beginning of 2024.
fn hour(i: u32) -> u32 {
    i * 7 % 23
}

/// Cells of row `i` before its joins.
fn base(i: u32) -> Vec<(&'static str, Value)> {
    let at = match i % 29 {
        5 => json!("soon"),
        _ => json!(format!("2024-01-01T{:02}:00:00Z", hour(i))),
    };
    let size = match i % 9 {
        0 => Value::Null,
        _ => json!(f64::from(i) / 7.0),
    };
    vec![
        ("id", json!(i)),
        ("shop", json!(i % 12)),
        ("at", at),
        ("size", size),
    ]
}

async fn land(root: &Store, source: &str, columns: &[(&str, ColumnType)], rows: Vec<Cells>) {
    LandingZone::new(root, source, columns).batch(&rows).await;
}

/// Prices of the shops at these hours, in source `prices`.
async fn land_prices(root: &Store, hours: &[u32]) {
    let rows = hours.iter().flat_map(|hour| {
        let price = move |shop: u32| {
            let from = 1_704_067_200 + 3600 * hour;
            vec![
                json!(shop.to_string()),
                json!(from),
                json!(shop * 100 + hour),
            ]
        };
        (0..12).map(price)
    });
    let columns = [("shop", Utf8), ("from", Int64), ("price", Int64)];
    land(root, "prices", &columns, rows.collect()).await;
}

/// The landing zones below `root`, without source `left_out`.
async fn land_all(root: &Store, left_out: Option<&str>) {
    let rows = (0..ROWS).map(|i| base(i).into_iter().map(|(_, cell)| cell).collect());
    let columns = [
        ("id", Int64),
        ("shop", Int64),
        ("at", Utf8),
        ("size", Float64),
    ];
    land(root, "a", &columns, rows.collect()).await;
    let shop = |i: u32| {
        let kind = format!("k{}", i % 4);
        vec![json!(i.to_string()), json!(kind), json!(f64::from(i) * 1.5)]
    };
    let columns = [("name", Utf8), ("kind", Utf8), ("area", Float64)];
    land(root, "shops", &columns, (0..10).map(shop).collect()).await;
    let kind = |i: u32| vec![json!(format!("k{i}")), json!(i * i)];
    let columns = [("name", Utf8), ("rank", Int64)];
    land(root, "kinds", &columns, (0..3).map(kind).collect()).await;
    let label = |i: u32| vec![json!(i), json!(f64::from(i) + 0.5)];
    let columns = [("id", Int64), ("y", Float64)];
    land(root, "labels", &columns, (0..ROWS).map(label).collect()).await;
    if left_out.is_none() {
        land_prices(root, &[0, 4, 8, 20]).await;
    }
}

impl Joined {
    fn build() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let root = Store::memory();
        let (context, scratch) = context(&root, 2);
        let config = load("p.toml", JOINS, &[]).unwrap().config;
        let built = async {
            land_all(&root, None).await;
            let report = build(&config, &context).await.unwrap();
            let dataset = root.child("dataset");
            let manifest = read_manifest(&dataset).await.unwrap();
            let artefact = read_transform(&dataset, &manifest).await.unwrap();
            (report, manifest, artefact, written(&dataset).await)
        };
        let (report, manifest, artefact, rows) = runtime.block_on(built);
        let counts = report
            .joins
            .iter()
            .filter(|join| join.source.as_str() != "labels");
        let counts = counts.map(|join| PredictedJoin {
            source: join.source.clone(),
            matched: join.matched,
            unmatched: join.unmatched,
        });
        Self {
            context,
            _scratch: scratch,
            manifest,
            transform: Transform::new(artefact).unwrap(),
            x: rows
                .into_iter()
                .map(|row| (row.origin.row(), row.x))
                .collect(),
            counts: counts.collect(),
            runtime,
        }
    }

    /// The joins, with the landing zones below `root`.
    fn joins_at(&self, root: &Store) -> RowJoins {
        self.joins_of(JOINS, root)
    }

    /// The joins of the pipeline `text`, with the landing zones below `root`.
    fn joins_of(&self, text: &str, root: &Store) -> RowJoins {
        let config = load("p.toml", text, &[]).unwrap().config;
        let context = Context {
            root: root.clone(),
            ..self.context.clone()
        };
        let artefact = self.transform.artefact();
        let keep = ["kind".into()];
        let joins = row_joins(&config, &self.manifest, artefact, &keep, &context);
        self.runtime.block_on(joins).unwrap().unwrap()
    }

    fn reading(&self, format: FileFormat, batch_rows: usize, joins: RowJoins) -> RowsReading {
        RowsReading {
            landed: joins.landed().cloned().unwrap_or_default(),
            keep: vec!["kind".into()],
            max_missing_fraction: Some(0.25),
            joins: Some(joins),
            ..reading(format, batch_rows)
        }
    }

    fn read(&self, bytes: Vec<u8>, reading: &RowsReading) -> Result<(Read, JoinedRows), Error> {
        let stream = RowSource::Stream(Box::new(Cursor::new(bytes)));
        let mut rows = RowsIn::open(stream, reading, self.transform.artefact())?;
        let (mut x, mut bad, mut kept) = (Vec::new(), BTreeMap::new(), Vec::new());
        while let Some(found) = rows.next_rows()? {
            assert!(found.inputs.num_rows() <= reading.batch_rows);
            let features = found.features(&self.transform)?;
            assert_eq!(features.first, x.len() as u64);
            let faults = features.bad.into_iter();
            bad.extend(faults.map(|(row, fault)| (features.first + row as u64, fault)));
            x.extend(
                features
                    .x
                    .chunks_exact(self.transform.features())
                    .map(<[f32]>::to_vec),
            );
            kept.extend(features.kept.into_iter().next().unwrap_or_default());
        }
        assert_eq!(rows.absent(), [""; 0]);
        Ok(((x, bad, kept), rows.joined()))
    }

    /// Checks the features of all rows against those of the build.
    fn check(&self, (x, bad, kept): &Read) {
        assert_eq!((x.len(), kept.len()), (ROWS as usize, ROWS as usize));
        for (row, x) in (0..).zip(x) {
            let expected = self.x.get(&row).map(|x| bits(std::slice::from_ref(x)));
            let found = (!bad.contains_key(&row)).then(|| bits(std::slice::from_ref(x)));
            assert_eq!(found, expected, "row {row}: {:?}", bad.get(&row));
        }
        for (row, fault) in bad {
            let i = u32::try_from(*row).unwrap();
            let expected = match i {
                _ if i % 12 >= 10 => "unmatched",
                _ if partner(i).is_none() => "unmatched_dropped",
                _ => "too_many_missing",
            };
            assert_eq!(fault.reason, expected, "{fault:?}");
        }
    }
}

/// Hour of the price that row `i` gets.
fn partner(i: u32) -> Option<u32> {
    let earlier = [0, 4, 8, 20].into_iter().filter(|from| *from < hour(i));
    earlier
        .max()
        .filter(|from| i % 29 != 5 && hour(i) - from <= 5)
}

/// Cells that joins add to row `i`; nulls without a match.
fn added(i: u32) -> Vec<(&'static str, Value)> {
    let (shop, price) = (i % 12, partner(i));
    let is_known = shop < 10;
    let rank = (is_known && shop % 4 < 3).then_some((shop % 4).pow(2));
    vec![
        ("kind", json!(is_known.then(|| format!("k{}", shop % 4)))),
        ("area", json!(is_known.then_some(f64::from(shop) * 1.5))),
        ("rank", json!(rank)),
        ("p_price", json!(price.map(|from| shop * 100 + from))),
        (
            "age",
            json!(price.map(|from| f64::from(hour(i) - from) * 3600.0)),
        ),
    ]
}

fn csv_text(rows: impl Iterator<Item = Vec<(&'static str, Value)>>) -> Vec<u8> {
    let mut out = csv::Writer::from_writer(Vec::new());
    for (i, row) in rows.enumerate() {
        if i == 0 {
            out.write_record(row.iter().map(|(name, _)| *name)).unwrap();
        }
        out.write_record(row.iter().map(|(_, cell)| text(cell)))
            .unwrap();
    }
    out.into_inner().unwrap()
}

fn objects(rows: impl Iterator<Item = Vec<(&'static str, Value)>>) -> Vec<u8> {
    let mut out = Vec::new();
    for row in rows {
        let cells = row.into_iter().filter(|(_, cell)| !cell.is_null());
        let object: serde_json::Map<String, Value> =
            cells.map(|(name, cell)| (name.to_owned(), cell)).collect();
        out.extend(format!("{}\n", Value::Object(object)).bytes());
    }
    out
}

#[test]
fn rows_of_the_base_table_are_joined_as_in_the_build() {
    let built = Joined::build();
    let inputs = &built.transform.artefact().inputs;
    let inputs: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    assert!(
        INPUTS.iter().all(|name| inputs.contains(name)),
        "{inputs:?}"
    );
    // Each way in which a row ends occurs.
    assert!(built.x.len() > 60 && built.counts.iter().all(|join| join.unmatched > 20));
    for (format, bytes) in [
        (FileFormat::Csv, csv_text((0..ROWS).map(base))),
        (FileFormat::Ndjson, objects((0..ROWS).map(base))),
    ] {
        for batch_rows in [7, 1000] {
            let joins = built.joins_at(&built.context.root);
            let reading = built.reading(format, batch_rows, joins);
            let (read, joined) = built.read(bytes.clone(), &reading).unwrap();
            built.check(&read);
            assert_eq!(joined.joins, built.counts, "{format:?} {batch_rows}");
            assert_eq!(joined.joined_before, 0);
            // A carried column may be a joined one.
            assert_eq!(read.2[1].as_deref(), Some("k1"));
            let shown = &read.1[&10].detail;
            let expected = "row 10: column `shop`: no row of source `shops` matches `10`";
            assert_eq!(shown, expected);
        }
    }
}

#[test]
fn rows_with_the_joined_columns_stay_as_they_are() {
    let built = Joined::build();
    let usable: Vec<u32> = (0..ROWS)
        .filter(|i| built.x.contains_key(&(*i).into()))
        .collect();
    let both = |i: &u32| [base(*i), added(*i)].concat();
    // Nothing has to be landed for them.
    let nothing = built.joins_at(&Store::memory());
    let joins = built.joins_at(&built.context.root);
    let table = csv_text(usable.iter().map(both));
    for joins in [&nothing, &joins] {
        let reading = RowsReading {
            landed: built
                .joins_at(&built.context.root)
                .landed()
                .unwrap()
                .clone(),
            ..built.reading(FileFormat::Csv, 1000, joins.clone())
        };
        let ((x, bad, _), joined) = built.read(table.clone(), &reading).unwrap();
        assert!(bad.is_empty(), "{bad:?}");
        let expected: Vec<Vec<f32>> = usable
            .iter()
            .map(|i| built.x[&(*i).into()].clone())
            .collect();
        assert_eq!(bits(&x), bits(&expected));
        assert!(joined.joins.is_empty());
        assert_eq!(joined.joined_before, usable.len() as u64);
    }
    // In objects each row says so for itself.
    let mixed = (0..ROWS).map(|i| match usable.contains(&i) && i.is_multiple_of(2) {
        true => both(&i),
        false => base(i),
    });
    let reading = built.reading(FileFormat::Ndjson, 50, joins);
    let (read, joined) = built.read(objects(mixed), &reading).unwrap();
    built.check(&read);
    let even = usable.iter().filter(|i| i.is_multiple_of(2)).count() as u64;
    assert_eq!(joined.joined_before, even);
    let looked_up = joined.joins[0].matched + joined.joins[0].unmatched;
    assert_eq!(looked_up, u64::from(ROWS) - even);
    // A table with some of the columns is refused.
    let some = [base(0), added(0)[..2].to_vec()].concat();
    let reading = RowsReading {
        format: FileFormat::Csv,
        ..reading
    };
    let some = csv_text([some].into_iter());
    let error = built.read(some, &reading).unwrap_err().to_string();
    let lacking = "it lacks 3 of the 8 needed columns: `rank`, `p_price`, `age`";
    assert!(
        error.contains(lacking) && error.contains("all or none"),
        "{error}"
    );
}

#[test]
fn a_joined_source_that_is_not_landed_is_named_once_a_row_needs_it() {
    let built = Joined::build();
    let root = Store::memory();
    built.runtime.block_on(land_all(&root, Some("prices")));
    let joins = built.joins_at(&root);
    assert_eq!(joins.landed(), None);
    for (format, bytes) in [
        (FileFormat::Csv, csv_text((0..2).map(base))),
        (FileFormat::Ndjson, objects((0..2).map(base))),
    ] {
        let reading = built.reading(format, 9, joins.clone());
        let error = built.read(bytes, &reading).unwrap_err().to_string();
        let lacking = "cannot use `standard input`: it lacks the joined columns `kind`, `area`, `rank`, `p_price`, `age`";
        assert!(error.starts_with(lacking), "{format:?}: {error}");
        let reason = "they cannot be joined: cannot use source `prices`: no rows have landed";
        assert!(error.contains(reason), "{format:?}: {error}");
    }
}

#[test]
fn rows_are_not_joined_by_other_settings_than_those_of_the_build() {
    let built = Joined::build();
    let other = JOINS.replace("tolerance = \"5h\"", "tolerance = \"9h\"");
    let joins = built.joins_of(&other, &built.context.root);
    let reading = built.reading(FileFormat::Csv, 1000, joins);
    let error = built.read(csv_text((0..2).map(base)), &reading);
    let error = error.unwrap_err().to_string();
    let reason = "they cannot be joined: `dataset.join`: the dataset was built with other joins";
    assert!(error.contains(reason), "{error}");
}

#[test]
fn rows_get_what_has_landed_by_now_and_nothing_later_than_themselves() {
    let built = Joined::build();
    let root = Store::memory();
    let landing = async {
        land_all(&root, Some("prices")).await;
        land_prices(&root, &[0, 4, 8, 20, 30]).await;
    };
    built.runtime.block_on(landing);
    let joins = built.joins_at(&root);
    let late = |at: &'static str| {
        let mut row = base(1);
        row[2].1 = json!(at);
        row
    };
    let later = [late("2024-01-02T06:00:00Z"), late("2024-01-02T07:00:00Z")];
    let rows = (0..ROWS).map(base).chain(later);
    let reading = built.reading(FileFormat::Csv, 1000, joins);
    let ((mut x, mut bad, mut kept), _) = built.read(csv_text(rows), &reading).unwrap();
    // The price of hour 30 is not known at hour 30, and none is as new as hour 25.
    assert_eq!(bad[&u64::from(ROWS)].reason, "unmatched_dropped");
    assert_eq!(bad.get(&u64::from(ROWS + 1)), None);
    bad.remove(&u64::from(ROWS));
    x.truncate(ROWS as usize);
    kept.truncate(ROWS as usize);
    built.check(&(x, bad, kept));
}

#[test]
fn a_key_that_appears_twice_in_the_joined_source_is_an_error() {
    let built = Joined::build();
    let root = Store::memory();
    let landing = async {
        land_all(&root, None).await;
        let shop = |kind: &str| vec![json!("3"), json!(kind), json!(1.0)];
        let columns = [("name", Utf8), ("kind", Utf8), ("area", Float64)];
        // The zone is written from its beginning.
        land(&root, "shops", &columns, vec![shop("k0"), shop("k1")]).await;
    };
    built.runtime.block_on(landing);
    let joins = built.joins_at(&root);
    let reading = built.reading(FileFormat::Csv, 1000, joins);
    let error = built
        .read(csv_text((0..2).map(base)), &reading)
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("`dataset.join.0.right`: 1 key appears more than once in column `name` of source `shops`"),
        "{error}"
    );
}

#[test]
fn new_rows_whose_keys_are_written_otherwise_than_in_the_joined_source_are_a_warning() {
    let built = Joined::build();
    let root = Store::memory();
    let landing = async {
        land_all(&root, None).await;
        let shop = |i: u32| vec![json!(format!("0{i}")), json!("k0"), json!(1.0)];
        let columns = [("name", Utf8), ("kind", Utf8), ("area", Float64)];
        land(&root, "shops", &columns, (0..10).map(shop).collect()).await;
    };
    built.runtime.block_on(landing);
    let find = |root: &Store, batch_rows| {
        let reading = built.reading(FileFormat::Csv, batch_rows, built.joins_at(root));
        let stream = RowSource::Stream(Box::new(Cursor::new(csv_text((1..4).map(base)))));
        let mut rows = RowsIn::open(stream, &reading, built.transform.artefact()).unwrap();
        while rows.next_rows().unwrap().is_some() {
            assert!(rows.joined().joins[0].matched + rows.joined().joins[0].unmatched > 0);
        }
        rows.found()
    };
    // Some rows have no match, and the sources have no key like theirs.
    let found = find(&built.context.root, 10);
    assert!(found.is_empty(), "{found:?}");
    for batch_rows in [1, 10] {
        let found = find(&root, batch_rows);
        let [warning] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(warning.code, "join_unmatched");
        for part in [
            "none of 3 new rows find a row of `shops` by `shop`",
            "3 rows find none although `shops` has their key",
            "`1` (1 row) and `01`",
            "; write the keys of new rows as `shops` has them",
        ] {
            assert!(warning.message.contains(part), "{part}: {warning:?}");
        }
    }
}
