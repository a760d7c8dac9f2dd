//! Rows of a pipe whose producer pauses.

use std::{
    io,
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use feedline_storage::clock::SystemClock;

use super::*;

/// A pipe that has the chunks which its sender sends.
struct FedPipe(Receiver<Vec<u8>>);

impl io::Read for FedPipe {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Ok(chunk) = self.0.recv() else {
            return Ok(0);
        };
        out[..chunk.len()].copy_from_slice(&chunk);
        Ok(chunk.len())
    }
}

fn pausing(format: FileFormat, csv: CsvConfig) -> RowsReading {
    RowsReading {
        csv,
        keep: vec!["id".into()],
        pause: Some(PauseRule {
            delay: Duration::from_millis(1),
            clock: Arc::new(SystemClock),
        }),
        ..reading(format, 1000)
    }
}

fn open_fed(reading: &RowsReading, first: &[u8]) -> (Sender<Vec<u8>>, RowsIn) {
    let (sender, chunks) = channel();
    if !first.is_empty() {
        sender.send(first.to_vec()).unwrap();
    }
    let stream = RowSource::Stream(Box::new(FedPipe(chunks)));
    let rows = RowsIn::open(stream, reading, BUILT.transform.artefact()).unwrap();
    (sender, rows)
}

/// Features of a batch, and what was kept.
fn values(batch: NewRows) -> (Vec<f32>, Vec<Option<String>>) {
    let features = batch.features(&BUILT.transform).unwrap();
    assert!(features.bad.is_empty(), "{:?}", features.bad);
    (features.x, features.kept[0].clone())
}

/// Checks that the rows `parts` of a pipe, fed one by one behind `head`, come out before the next
/// part is fed, and are those that the same bytes have in one piece.
fn check(reading: &RowsReading, head: &[u8], parts: &[&[u8]]) {
    let whole = [&[head], parts].concat().concat();
    let (x, bad, kept) = read_all(whole, reading).unwrap();
    assert!(bad.is_empty(), "{bad:?}");
    let (sender, mut rows) = open_fed(reading, head);
    let mut found = (Vec::new(), Vec::new());
    for (number, part) in parts.iter().enumerate() {
        sender.send(part.to_vec()).unwrap();
        // The half row at the end of the part does not count.
        while found.1.len() <= number {
            let (x, kept) = values(rows.next_rows().unwrap().unwrap());
            found.0.extend(x);
            found.1.extend(kept);
        }
    }
    drop(sender);
    while let Some(batch) = rows.next_rows().unwrap() {
        let (x, kept) = values(batch);
        found.0.extend(x);
        found.1.extend(kept);
    }
    assert!(rows.next_rows().unwrap().is_none());
    assert!(rows.absent().is_empty());
    assert_eq!(found, (x.concat(), kept));
}

const HEADER: &str = "id;size;rooms;kind;new\n";

#[test]
fn complete_rows_of_csv_are_given_out_while_the_producer_pauses() {
    let lines = [
        "1;2.5;1;z;true\n2;1",
        ".5;2;\"a\nü\";false\n3;4",
        ";1;z;true\n4;1;2;z;false",
    ];
    let reading = pausing(FileFormat::Csv, CsvConfig::default());
    check(&reading, HEADER.as_bytes(), &lines.map(str::as_bytes));
    let wide = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let parts = lines.map(wide);
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    check(&reading, &wide(&format!("\u{feff}{HEADER}")), &parts);
    let skipping = CsvConfig {
        skip_rows: 1,
        comment: Some("#".into()),
        ..CsvConfig::default()
    };
    let head = format!("exported\n# today\n{HEADER}");
    let reading = pausing(FileFormat::Csv, skipping);
    check(&reading, head.as_bytes(), &lines.map(str::as_bytes));
}

#[test]
fn complete_lines_of_json_are_given_out_while_the_producer_pauses() {
    let line = |id: u32| {
        format!("{{\"id\":{id},\"size\":{id}.5,\"rooms\":1,\"kind\":\"z\",\"new\":true}}\n")
    };
    let text = (0..4).map(line).collect::<String>();
    let cuts = [0, 70, 130, 190, text.len()];
    let parts: Vec<&[u8]> = cuts
        .windows(2)
        .map(|c| &text.as_bytes()[c[0]..c[1]])
        .collect();
    let reading = pausing(FileFormat::Ndjson, CsvConfig::default());
    check(&reading, &[], &parts);
    check(&reading, parts[0], &parts[1..]);
}

#[test]
fn a_fault_of_a_pipe_follows_the_rows_before_it() {
    let reading = pausing(FileFormat::Csv, CsvConfig::default());
    let (sender, mut rows) = open_fed(&reading, HEADER.as_bytes());
    sender.send(b"1;2.5;1;z;true\n".to_vec()).unwrap();
    let (_, kept) = values(rows.next_rows().unwrap().unwrap());
    assert_eq!(kept, [Some("1".to_owned())]);
    sender.send(b"2;1;1;z;\"a\nb".to_vec()).unwrap();
    drop(sender);
    let error = rows.next_rows().unwrap_err().to_string();
    assert!(error.contains("a quote is not closed"), "{error}");
}
