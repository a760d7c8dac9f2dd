//! Rows that a query makes of the sources.

mod repeated_rows;

use std::collections::BTreeSet;

use arrow::{array::AsArray, datatypes::Int64Type};
use feedline_schemas::{
    manifest::Split,
    record::ColumnType::{self, Float64, Int64, Json, Utf8},
};
use feedline_storage::Store;
use serde_json::json;

use crate::{
    read_manifest,
    testing::{Cells, LandingZone, blocks, build_with, contents, written},
    verify,
};

const ORDERS: [(&str, ColumnType); 3] = [("id", Int64), ("shop", Utf8), ("Price", Float64)];
const SHOPS: [(&str, ColumnType); 2] = [("name", Utf8), ("city", Utf8)];

fn order(i: i64) -> Cells {
    vec![
        json!(i),
        json!(["x", "y", "z"][usize::try_from(i % 3).unwrap()]),
        json!(i as f64 * 0.5),
    ]
}

/// Orders in source `a`, some in another schema version, and their shops in source `b`.
async fn landed(orders: impl Iterator<Item = i64>) -> Store {
    let root = Store::memory();
    let orders: Vec<Cells> = orders.map(order).collect();
    let mut zone = LandingZone::new(&root, "a", &ORDERS);
    let (early, late) = orders.split_at(orders.len() / 2);
    zone.batch(early).await;
    zone.batch(late).await;
    let shops = ["x", "y", "z"].map(|shop| vec![json!(shop), json!(format!("city {shop}"))]);
    LandingZone::new(&root, "b", &SHOPS).batch(&shops).await;
    root
}

const SQL: &str = "sql = \"\"\"select a.id, a.Price, a.Price * 2 as twice, b.city, s.orders
    from a join b on a.shop = b.name
    join (select shop, count(*) as orders from a group by shop) s on s.shop = a.shop
    where a.Price >= 10 order by a.id desc\"\"\"\npassthrough = [\"id\"]\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_query_makes_the_rows_whatever_the_partitions_and_the_order_they_landed_in() {
    let mut found = Vec::new();
    for (partitions, memory) in [(1, None), (3, None), (2, Some(64 << 20))] {
        let root = landed(0..300).await;
        let (mut context, _scratch) = crate::testing::context(&root, partitions);
        context.memory_bytes = memory;
        let report = crate::build(&crate::testing::pipeline(SQL), &context)
            .await
            .unwrap();
        assert_eq!(
            (report.rows_in, report.duplicates, report.rejected),
            (280, 0, 0)
        );
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1] && found[0] == found[2]);
    let mut origins = Vec::new();
    for backwards in [false, true] {
        let root = match backwards {
            true => landed((0..300).rev()).await,
            false => landed(0..300).await,
        };
        build_with(&root, SQL, 2).await.unwrap();
        let dataset = root.child("dataset");
        let mut rows = BTreeSet::new();
        for (_, batch) in blocks(&dataset).await {
            let ids = batch["id"].as_primitive::<Int64Type>();
            let origins = batch["origin"].as_primitive::<arrow::datatypes::UInt64Type>();
            rows.extend(
                ids.values()
                    .iter()
                    .copied()
                    .zip(origins.values().iter().copied()),
            );
        }
        assert_eq!(
            rows.iter().map(|row| row.0).collect::<Vec<_>>(),
            (20..300).collect::<Vec<_>>()
        );
        assert_eq!(
            rows.iter().map(|row| row.1).collect::<BTreeSet<_>>(),
            (0..280).collect()
        );
        let manifest = read_manifest(&dataset).await.unwrap();
        assert_eq!(manifest.sources.len(), 2);
        assert!(verify(&dataset).await.unwrap().problems.is_empty());
        origins.push(rows);
    }
    assert_eq!(
        origins[0], origins[1],
        "a row keeps its origin in whatever order it landed"
    );
}

#[tokio::test]
async fn rows_of_a_query_are_split_cleaned_and_set_aside_as_landed_ones_are() {
    let root = landed(0..100).await;
    let dataset = "sql = \"select id, Price, case when id % 10 = 3 then null else Price end as y from a union all select id, Price, Price as y from a where id = 4\"\n\
                   target = \"y\"\nmax_reject_fraction = 0.2\n\
                   split = { by = \"expression\", expression = \"case when id % 5 = 0 then 'test' else 'train' end\" }\n";
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert_eq!(
        (report.rows_in, report.duplicates, report.rejected),
        (101, 1, 10)
    );
    assert_eq!((report.train, report.test), (70, 20));
    let sample = report.reject_sample.unwrap();
    assert!(
        sample.starts_with("{\"source\":\"sql\",\"sequence\":0,"),
        "{sample}"
    );
    let tests = written(&root.child("dataset")).await;
    assert_eq!(
        tests.iter().filter(|row| row.split == Split::Test).count(),
        20
    );
}

#[tokio::test]
async fn a_query_that_repeats_rows_is_warned_of_unless_a_split_key_keeps_copies_together() {
    let root = landed(0..120).await;
    let twice =
        "(select name, city from b union all select name, 'other' from b) s on a.shop = s.name";
    let all = "select a.id, a.Price, s.city from a";
    let repeated = format!("{all} left join {twice}");
    for (sql, split, rows, expected) in [
        (repeated.clone(), "", 240, true),
        (format!("{all} join {twice}"), "", 240, true),
        (repeated, "split = { key = [\"id\"] }\n", 240, false),
        (
            format!("{all} left join b s on a.shop = s.name"),
            "",
            120,
            false,
        ),
        // Of a union both parts count.
        (
            "select id, Price from a union all select id, Price + 1 from a".into(),
            "",
            240,
            false,
        ),
        // The table of more rows is the one that the query begins from.
        (
            "select b.city, a.id from b left join a on a.shop = b.name".into(),
            "",
            120,
            true,
        ),
        (
            "select b.city, a.id from b join a on a.shop = b.name".into(),
            "",
            120,
            false,
        ),
    ] {
        let dataset = format!("sql = \"\"\"{sql}\"\"\"\n{split}");
        let report = build_with(&root, &dataset, 2).await.unwrap();
        assert_eq!(report.rows_in, rows, "{sql}");
        let mut found = report.warnings.iter();
        let found = found.find(|warning| warning.code == "sql_repeats_rows");
        assert_eq!(found.is_some(), expected, "{sql}: {found:?}");
        let Some(warning) = found else { continue };
        assert_eq!(warning.key.as_deref(), Some("dataset.sql"));
        for part in [
            &*format!("returns {rows} rows, and "),
            "`dataset.split.key`",
        ] {
            assert!(warning.message.contains(part), "{part}: {warning:?}");
        }
    }
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    let tables = manifest.counts.query_tables.into_iter();
    let expected = [("a".to_owned(), 120), ("b".to_owned(), 3)];
    assert_eq!(tables.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn copies_that_share_a_time_and_combinations_of_a_cross_join_are_no_repeated_rows() {
    let root = landed(0..120).await;
    let twice = "(select name, city from b union all select name, 'other' from b) s";
    let by_time =
        "split = { by = \"time\", time = \"id\", train = 0.8, validation = 0.1, test = 0.1 }\n";
    let target = "target = \"y\"\n";
    let others = "(select shop, id as n from a) s";
    let grid = "from (select distinct id from a) d cross join b \
                left join a s on s.id = d.id and s.shop = b.name";
    for (sql, more, expected) in [
        // All copies of an order have its id.
        (
            format!("select a.id, a.Price, s.city from a left join {twice} on a.shop = s.name"),
            by_time,
            None,
        ),
        (
            format!("select s.n as id, a.Price from a left join {others} on a.shop = s.shop"),
            by_time,
            Some("it begins from"),
        ),
        // A cell of the target is that of one combination.
        (
            format!("select d.id, b.city, coalesce(s.Price, 0.0) as y {grid}"),
            target,
            None,
        ),
        (
            "select a.id, b.city, a.Price * length(b.city) as y from a cross join b".to_owned(),
            target,
            None,
        ),
        (
            "select a.id, b.city, a.Price as y from a cross join b".to_owned(),
            target,
            Some("`y` comes from `a` alone, and it reads 120 rows of that: does each"),
        ),
        (
            "select a.id, b.city, a.Price as y from a, b where a.shop = b.name".to_owned(),
            target,
            None,
        ),
        (
            format!("select a.id, s.city, a.Price as y from a, {twice} where a.shop = s.name"),
            target,
            Some("it reads 120 from `a`"),
        ),
    ] {
        let dataset = format!("sql = \"\"\"{sql}\"\"\"\n{more}");
        let report = build_with(&root, &dataset, 2).await.unwrap();
        let mut found = report.warnings.iter();
        let found = found.find(|warning| warning.code == "sql_repeats_rows");
        assert_eq!(found.is_some(), expected.is_some(), "{sql}: {found:?}");
        let message = found.map_or("", |warning| warning.message.as_str());
        assert!(message.contains(expected.unwrap_or_default()), "{message}");
    }
}

#[tokio::test]
async fn a_query_reads_of_a_source_with_a_key_the_newest_rows() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("id", Int64), ("x", Float64)]);
    zone.batch(
        &(0..50)
            .map(|i| vec![json!(i), json!(0.5)])
            .collect::<Vec<_>>(),
    )
    .await;
    zone.evolve(&[("id", Int64), ("x", Float64), ("note", Utf8)]);
    zone.batch(
        &(0..50)
            .map(|i| vec![json!(i), json!(i), json!("new")])
            .collect::<Vec<_>>(),
    )
    .await;
    let mut config = crate::testing::pipeline(
        "sources = [\"a\"]\nsql = \"select id, x from a where note = 'new'\"\n",
    );
    config.source[0].key = vec!["id".into()];
    let (context, _scratch) = crate::testing::context(&root, 2);
    let report = crate::build(&config, &context).await.unwrap();
    assert_eq!(report.rows_in, 50);
}

#[tokio::test]
async fn queries_that_are_none_are_refused_by_name() {
    let root = landed(0..30).await;
    let failure = async |sql: &str| {
        let error = build_with(&root, &format!("sql = \"{sql}\"\n"), 2).await;
        error.unwrap_err().to_string()
    };
    for (sql, part) in [
        ("select from", "cannot be read"),
        ("select id from c", "over the tables a, b"),
        (
            "select x from \\\"a.items\\\"",
            "a child table of `a` is listed in `dataset.sources`",
        ),
        (
            "select x from b.items",
            "is called `\"b.items\"` in the query",
        ),
        ("select price from a", "price"),
        (
            "select a.id, c.id from a join a c on a.id = c.id",
            "two columns of the result are called `id`",
        ),
        ("select id, random() as r from a", "`random` may change"),
        (
            "select id from a where id in (select id from a where random() < 0.5)",
            "`random` may change",
        ),
        ("drop table a", "cannot be read"),
        ("select id from a; select id from b", "cannot be read"),
        (
            "select id, interval '1 day' as span from a",
            "column `span` is of type Interval",
        ),
        (
            "select id from a where id < 0",
            "the result of `dataset.sql`: it has no row",
        ),
    ] {
        let message = failure(sql).await;
        assert!(message.contains(part), "{sql}: {message}");
    }
}

#[tokio::test]
async fn a_query_makes_dates_and_times_without_a_zone_into_their_text() {
    let root = landed(0..30).await;
    let dataset = "sql = \"\"\"select id, Price, cast('2024-01-05' as date) as day,
        cast('2024-01-05T06:07:08.120' as timestamp) as ms, to_timestamp_seconds(id) as s from a\"\"\"\n\
        passthrough = [\"id\", \"day\", \"ms\", \"s\"]\ndedup = \"none\"\n";
    build_with(&root, dataset, 2).await.unwrap();
    let mut rows = 0;
    for (_, batch) in blocks(&root.child("dataset")).await {
        let ids = batch["id"].as_primitive::<Int64Type>();
        let [day, ms, s] = ["day", "ms", "s"].map(|name| batch[name].as_string::<i32>());
        for row in 0..batch.num_rows() {
            assert_eq!(day.value(row), "2024-01-05");
            assert_eq!(ms.value(row), "2024-01-05T06:07:08.120");
            let second = format!("1970-01-01T00:00:{:02}", ids.value(row));
            assert_eq!(s.value(row), second);
            rows += 1;
        }
    }
    assert_eq!(rows, 30);
}

#[tokio::test]
async fn standard_spellings_of_functions_are_read() {
    let root = landed(0..30).await;
    let dataset = "sql = \"\"\"select id, Price, extract(year from to_timestamp_seconds(id)) as year,
        substring(shop from 1 for 1) as first, substr(shop, 1, 1) as short, position('y' in shop) as at from a\"\"\"\n\
        passthrough = [\"id\", \"year\", \"first\", \"short\", \"at\"]\ndedup = \"none\"\n\
        split = { by = \"expression\", expression = \"case when substr(first, 1, 1) = 'x' then 'test' else 'train' end\" }\n";
    build_with(&root, dataset, 2).await.unwrap();
    let mut rows = 0;
    for (split, batch) in blocks(&root.child("dataset")).await {
        let [year, at] = ["year", "at"].map(|name| batch[name].as_primitive::<Int64Type>());
        let [first, short] = ["first", "short"].map(|name| batch[name].as_string::<i32>());
        for row in 0..batch.num_rows() {
            let shop = first.value(row);
            assert_eq!((year.value(row), short.value(row)), (1970, shop));
            assert_eq!(at.value(row), i64::from(shop == "y"));
            assert_eq!(split == Split::Test, shop == "x");
            rows += 1;
        }
    }
    assert_eq!(rows, 30);
}

#[tokio::test]
async fn a_column_of_json_text_stays_text() {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..40)
        .map(|i| vec![json!(i), json!(format!("{{\"i\":{i}}}"))])
        .collect();
    LandingZone::new(&root, "a", &[("x", Int64), ("doc", Json)])
        .batch(&rows)
        .await;
    let dataset =
        "sources = [\"a\"]\nsql = \"select x, doc, x > 3 as big from a\"\ndrop = [\"doc\"]\n";
    build_with(&root, dataset, 1).await.unwrap();
}

const BIG: i64 = 3_000_000_000_000_000_000;

/// Rows `i`, `big`, `small` in source `a`: eight of [`BIG`], whose sum leaves 64 bits, and as many that are small.
async fn of_big() -> Store {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..16)
        .map(|i| {
            let big = if i % 2 == 0 { BIG + i } else { i };
            vec![json!(i), json!(big), json!(i % 5)]
        })
        .collect();
    LandingZone::new(
        &root,
        "a",
        &[("i", Int64), ("big", Int64), ("small", Int64)],
    )
    .batch(&rows)
    .await;
    root
}

/// Message about a query over [`of_big`], in one line.
async fn said(sql: &str) -> String {
    let root = of_big().await;
    let error = build_with(&root, &format!("sql = \"{sql}\"\n{ALL}"), 2).await;
    crate::message_with_causes(&error.unwrap_err())
}

const ALL: &str = "sources = [\"a\"]\nsplit = { train = 1.0, validation = 0.0, test = 0.0 }\n";

#[tokio::test]
async fn integers_that_leave_64_bits_in_a_query_end_the_build() {
    let mut odd = Vec::new();
    for (sql, part) in [
        ("select i, big * small as v from a", " * 4` is no integer"),
        ("select i, big + big + big + big as v from a", " + "),
        (
            "select i from a order by -9223372036854775807 - big limit 3",
            "`-9223372036854775807 - ",
        ),
        ("select i from a where big * 8 > 0", " * 8` is no integer"),
        (
            "select -(big - big - 9223372036854775807 - 1) as v from a",
            "`0 - -9223372036854775808`",
        ),
        (
            "select big * 7 as v, count(*) as n from a group by big * 7",
            " * 7` is no integer",
        ),
        (
            "select i from a where i in (select b.i * big * 9 from a b)",
            " is no integer",
        ),
        (
            "select i, (select sum(b.big) from a b) as v from a",
            "gives 24000000000000000120,",
        ),
        (
            "select i % 2 as odd, sum(big) as v from a group by i % 2",
            "`sum(a.big)` gives ",
        ),
        (
            "select sum(big) as v from a",
            "`sum(a.big)` gives 24000000000000000120,",
        ),
        (
            "select sum(distinct big) as v from a",
            "` gives 24000000000000000120,",
        ),
        (
            "select i, sum(big) over (order by i) as v from a",
            " gives ",
        ),
        (
            "select i, sum(big) over (order by i rows 8 preceding) as v from a",
            " gives ",
        ),
        (
            "select i from a group by i having sum(big) * 8 > 0",
            " * 8` is no integer",
        ),
    ] {
        let message = said(sql).await;
        let is_one = !message.contains('\n') && message.matches("dataset.sql").count() == 1;
        if !(message.starts_with("`dataset.sql`: ") && message.contains(part) && is_one) {
            odd.push(format!("{sql}: {message}"));
        }
    }
    assert!(odd.is_empty(), "{}", odd.join("\n"));
}

#[tokio::test]
async fn integers_of_a_query_keep_their_values_names_and_types() {
    let sql = "select i * 2 - -i, i + 1 as up, sum(big) over (order by i rows 1 preceding) as pair, \
               sum(small) over () as total, cast(i as smallint) * cast(2 as smallint) as narrow, \
               row_number() over (order by i) + rank() over (order by i) as place, a.small / 2 as half, \
               (select sum(b.small) from a b where b.small = a.small) as below, \
               (select sum(b.small) filter (where b.i > 99) from a b) as none, \
               s.n, s.least from a join (select small % 2 as odd, sum(distinct small) as n, min(i + 5) as least from a group by small % 2) s \
               on s.odd = a.small % 2 where i * 2 < 100 order by i * 3";
    let root = of_big().await;
    let dataset = format!(
        "sql = \"{sql}\"\n{ALL}drop = [\"none\"]\npassthrough = [\"up\", \"pair\", \"total\", \"narrow\", \"place\", \"half\", \"below\", \"n\", \"least\"]\n"
    );
    build_with(&root, &dataset, 2).await.unwrap();
    let names = [
        "up", "pair", "total", "narrow", "place", "half", "below", "n", "least",
    ];
    let mut rows = BTreeSet::new();
    for (_, batch) in blocks(&root.child("dataset")).await {
        let columns = names.map(|name| batch[name].as_primitive::<Int64Type>());
        rows.extend((0..columns[0].len()).map(|row| columns.map(|column| column.value(row))));
    }
    let big = |i: i64| if i % 2 == 0 { BIG + i } else { i };
    let of = |i: i64| {
        let pair = big(i) + if i > 0 { big(i - 1) } else { 0 };
        let below = i % 5 * 3;
        let odd = i % 5 % 2 == 1;
        let (n, least) = if odd { (4, 6) } else { (6, 5) };
        [
            i + 1,
            pair,
            30,
            i * 2,
            i * 2 + 2,
            i % 5 / 2,
            below,
            n,
            least,
        ]
    };
    assert_eq!(rows, (0..16).map(of).collect());
}

#[tokio::test]
async fn sets_of_groups_over_exact_integers_keep_their_columns() {
    let root = of_big().await;
    let sql = "select small * 2 as twice, sum(i) as n from a group by rollup(small * 2)";
    let dataset = format!("sql = \"{sql}\"\n{ALL}features = [\"n\"]\n");
    let report = build_with(&root, &dataset, 2).await.unwrap();
    assert_eq!(report.rows_in, 6);
}

#[tokio::test]
async fn what_the_engine_says_of_a_query_that_fails_is_one_line_that_names_it() {
    for (sql, expected) in [
        (
            "select i, i / small as v from a",
            "`dataset.sql`: it fails: Divide by zero error; divide by `nullif(..., 0)`, which gives no value \
             there",
        ),
        (
            "select i, cast(big as int) as v from a",
            "`dataset.sql`: it fails: Cast error: Can't cast value 3000000000000000000 to type Int32; use \
             `try_cast`, which gives no value there",
        ),
    ] {
        assert_eq!(said(sql).await, expected);
    }
    let message = said("select j from a").await;
    assert!(
        message.contains(
            "No field named j. Valid fields are a.i, a.big, a.small.; it is one `select`"
        ),
        "{message}"
    );
    assert!(!message.contains('\n'), "{message}");
}
