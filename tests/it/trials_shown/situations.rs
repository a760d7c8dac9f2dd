//! Servers and data of the findings in `tests/trials-shown.md`. A table of a finding is the file `rows.csv`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
};

use crate::{
    decisions, ends,
    support::{serve, serve_bytes},
    types,
};

/// Prepares a folder for the commands of a finding: writes its files, or starts its server, whose origin it returns.
pub(super) type Situation = fn(&Path) -> Option<String>;

/// The findings that were silent, in the order of `tests/trials.md`.
pub(super) const SITUATIONS: [(&str, Situation); 33] = [
    ("ingest 8", write_numbers),
    ("ingest 10", write_numbers),
    ("ingest 13", |_| Some(serve_pages_together())),
    ("ingest 17", |_| Some(serve_pages_of_one_canonical())),
    ("ingest 25", |_| Some(ends::serve_two_hundred())),
    ("ingest 26", |_| Some(serve_links())),
    ("ingest 27", |_| Some(serve_cursor_headers())),
    ("ingest 28", |_| Some(serve_successes_without_records())),
    ("ingest 29", |_| Some(ends::serve_two_hundred())),
    ("ingest 30", write_and_serve_readings),
    ("ingest 31", |_| Some(serve_flags(|_, i| i >= 7))),
    ("ingest 32", |_| Some(serve_flags(|page, _| page == 6))),
    ("ingest 33", |_| Some(serve_after_a_century())),
    ("tables S1", |folder| {
        write_table(
            folder,
            "id,Income,Expenses,Kind,Price",
            types::applicants().into_iter(),
        )
    }),
    ("tables S2", write_ratios),
    ("tables S3", write_decisions),
    ("tables S4", write_small_integers),
    ("tables S5", write_applicants_and_richer_ones),
    ("tables S6", write_decisions),
    ("tables S7", write_days),
    ("tables S8", write_rides),
    ("tables S9", write_noise),
    ("tables S10", write_decisions),
    ("tables S11", write_growing),
    ("tables B1", write_growing),
    ("tables B3", write_hours),
    ("tables B5", write_flowers_without_a_header),
    ("tables B12", write_prices),
    ("training S1", write_digits),
    ("training S2", write_numbers),
    ("training S4", write_growing),
    ("statistics 3", write_copies),
    ("statistics 4", write_visits),
];

/// Writes `rows.csv`.
fn write_table(folder: &Path, header: &str, lines: impl Iterator<Item = String>) -> Option<String> {
    let lines: Vec<String> = lines.collect();
    let table = format!("{header}\n{}\n", lines.join("\n"));
    fs::write(folder.join("rows.csv"), table).unwrap();
    None
}

fn write_numbers(folder: &Path) -> Option<String> {
    write_table(folder, "id", (0..100).map(|i: u32| i.to_string()))
}

fn write_decisions(folder: &Path) -> Option<String> {
    decisions::write_rows(folder);
    None
}

/// Writes a number with a decimal comma, a percentage and an ISO date in each row.
fn write_ratios(folder: &Path) -> Option<String> {
    let line = |i: u32| {
        format!(
            "2024-{:02}-{:02};{},{:02};{}%;{}",
            1 + i % 3,
            1 + i % 28,
            1_000 + i * 37 % 701,
            i * 53 % 97,
            i * 29 % 100,
            i * 31 % 983
        )
    };
    write_table(folder, "day;Ratio;pct;Price", (0..400).map(line))
}

/// Writes 5,000 rows; 15 of them differ.
fn write_small_integers(folder: &Path) -> Option<String> {
    let line = |i: u32| format!("{},{},{}", i % 5, i % 3, i % 15 * 7 % 4);
    write_table(folder, "a,b,y", (0..5_000).map(line))
}

/// Writes 1,500 applicants, and as the lines of `new.csv` 200 others with five times the income.
fn write_applicants_and_richer_ones(folder: &Path) -> Option<String> {
    let line = |i: u32, times: u32| {
        let (income, price) = (900 + i * 37 % 701, i * 29 % 983);
        format!("{},{},{price}.{i}", income * times, i * 53 % 97)
    };
    let new = (1_500..1_700).map(|i| line(i, 5) + "\n");
    fs::write(folder.join("new.csv"), new.collect::<String>()).unwrap();
    let first = (0..1_500).map(|i| line(i, 1));
    write_table(folder, "Income,Expenses,Price", first)
}

/// Writes an identifier that counts down beside numbers that occur several times.
fn write_hours(folder: &Path) -> Option<String> {
    let line = |i: u32| format!("{},{}", i % 24, i * 37 % 101);
    write_table(folder, "hour,n", (0..48).map(line))
}

/// Writes measures of flowers; the first line is a flower.
fn write_flowers_without_a_header(folder: &Path) -> Option<String> {
    let line = |i: u32| {
        let name = ["setosa", "versicolor", "virginica"][(i % 3) as usize];
        format!("{}.{},{}.5,{name}", 4 + i % 4, i % 10, 2 + i % 3)
    };
    write_table(folder, &line(1), (2..=150).map(line))
}

/// Writes prices that occur once or twice each.
fn write_prices(folder: &Path) -> Option<String> {
    let line = |i: u32| format!("{}.5,{}", i * 37 % 601, i % 400);
    write_table(folder, "x,price", (0..600).map(line))
}

/// Value of a parameter of a request.
fn parameter<'a>(target: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = target.split(['?', '&']);
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// A page of ten records `{"id": N}`.
fn ten(page: u64) -> String {
    let records = (page * 10..page * 10 + 10).map(|id| format!("{{\"id\":{id}}}"));
    let records: Vec<String> = records.collect();
    format!("{{\"items\": [{}]}}", records.join(","))
}

/// A number from -50 to 50 that looks random.
fn noise(seed: u64, i: u64) -> i64 {
    let mut random = crate::support::Random(seed << 32 | i);
    i64::try_from(random.below(101)).unwrap() - 50
}

/// Sales of 400 days.
fn write_days(folder: &Path) -> Option<String> {
    let line = |i: u64| {
        let (month, day) = (1 + i / 28 % 12, 1 + i % 28);
        let year = 2022 + i / 336;
        format!(
            "{year}-{month:02}-{day:02},{},{}",
            noise(1, i),
            noise(2, i) + 100
        )
    };
    write_table(folder, "day,warmth,sales", (0..400).map(line))
}

/// Rides of 400 hours by guests and members, their sum, and the price that follows from it.
fn write_rides(folder: &Path) -> Option<String> {
    let line = |i: u64| {
        let (guests, members) = (noise(3, i) + 60, noise(4, i) + 200);
        let rides = guests + members;
        format!(
            "{i},{},{guests},{members},{},{rides}",
            noise(5, i),
            2 * rides + 1
        )
    };
    let header = "id,wind,guests,members,income,rides";
    write_table(folder, header, (0..400).map(line))
}

/// 60 rows of noise.
fn write_noise(folder: &Path) -> Option<String> {
    let line = |i: u64| format!("{},{},{}", noise(6, i), noise(7, i), noise(8, i));
    write_table(folder, "a,b,y", (0..60).map(line))
}

/// 400 rows, and 100 more in a folder of their own.
fn write_growing(folder: &Path) -> Option<String> {
    let line = |i: u64| {
        let (a, b) = (noise(9, i), noise(10, i));
        format!("{a},{b},{}\n", 2 * a - b)
    };
    let table =
        |rows: std::ops::Range<u64>| format!("a,b,y\n{}", rows.map(line).collect::<String>());
    fs::create_dir(folder.join("rows")).unwrap();
    fs::write(folder.join("rows/1.csv"), table(0..400)).unwrap();
    fs::write(folder.join("later.csv"), table(400..500)).unwrap();
    None
}

/// Rows of ten digits, the higher the more.
fn write_digits(folder: &Path) -> Option<String> {
    let line = |i: u64| format!("{},{}", noise(11, i), ((i % 55 * 8 + 1).isqrt() - 1) / 2);
    write_table(folder, "x,digit", (0..550).map(line))
}

/// 200 rows of noise, each five times under another id.
fn write_copies(folder: &Path) -> Option<String> {
    let line = |i: u64| {
        let row = i % 200;
        format!(
            "{i},{},{},{}",
            noise(12, row),
            noise(13, row),
            noise(14, row)
        )
    };
    write_table(folder, "id,a,b,y", (0..1000).map(line))
}

/// Visits of 40 patients; of three in ten the patient is not known.
fn write_visits(folder: &Path) -> Option<String> {
    let line = |i: u64| {
        let patient = match i % 10 {
            0..=2 => String::new(),
            _ => format!("p{}", i % 40),
        };
        format!("{patient},{},{}", noise(15, i), noise(16, i))
    };
    write_table(folder, "patient,x,y", (0..1000).map(line))
}

/// Serves three pages of ten records below each path, and the next one in a `Link` header as the path says.
fn serve_links() -> String {
    serve(|target| {
        let page = parameter(target, "page").map_or(0, |page| page.parse().unwrap());
        let (path, next) = (target.split('?').next().unwrap(), page + 1);
        let link = match path {
            _ if page == 2 => format!("Link: <{path}>; rel=\"first\"\r\n"),
            "/beyond-ascii" => {
                format!("Link: <{path}?q=caf\u{e9}&page={next}>; rel=\"next\"\r\n")
            }
            "/without-brackets" => format!("Link: {path}?page={next}; rel=\"next\"\r\n"),
            _ => String::new(),
        };
        ("200 OK", link, ten(page))
    })
}

/// Serves three pages of ten records below each path, and the cursor of the next one in the header `X-Next`, in UTF-8 or
/// Latin-1 as the path says.
fn serve_cursor_headers() -> String {
    serve_bytes(|target| {
        let cursor = parameter(target, "cursor").unwrap_or("0");
        let page: u64 = cursor[cursor.len() - 1..].parse().unwrap();
        let mut answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n".to_vec();
        if page < 2 {
            answer.extend(b"X-Next: n");
            match target.starts_with("/latin-1") {
                true => answer.push(0xe4),
                false => answer.extend("\u{e4}".as_bytes()),
            }
            answer.extend(format!("chste-{}\r\n", page + 1).bytes());
        }
        let body = ten(page);
        answer.extend(format!("Content-Length: {}\r\n\r\n{body}", body.len()).bytes());
        answer
    })
}

/// Serves two pages of ten records, and behind them what its path says.
fn serve_successes_without_records() -> String {
    serve(|target| {
        let page = parameter(target, "page").map_or(1, |page| page.parse().unwrap());
        let (status, body) = match target.split('?').next().unwrap() {
            "/partial-206" if page <= 2 => ("206 Partial Content", ten(page)),
            _ if page <= 2 => ("200 OK", ten(page)),
            "/error-200" => (
                "200 OK",
                "{\"items\": [], \"error\": {\"code\": \"quota used up\"}}".to_owned(),
            ),
            "/accepted-202" => ("202 Accepted", "{\"items\": []}".to_owned()),
            _ => ("200 OK", "{\"items\": []}".to_owned()),
        };
        (status, String::new(), body)
    })
}

/// Four readings, three of them equal, as the file `rows.csv` and from a server.
fn write_and_serve_readings(folder: &Path) -> Option<String> {
    let readings = [(1, 20.5), (1, 20.5), (2, 21.0), (1, 20.5)];
    let lines = readings.map(|(sensor, celsius)| format!("{sensor},{celsius}"));
    write_table(folder, "sensor,celsius", lines.into_iter());
    let records = readings
        .map(|(sensor, celsius)| format!("{{\"sensor\": {sensor}, \"celsius\": {celsius}}}"));
    let body = format!("[{}]", records.join(","));
    Some(serve(move |_| ("200 OK", String::new(), body.clone())))
}

/// Serves six pages of ten records with the column `edited`, which is false but for the records that are a float.
fn serve_flags(is_float: fn(u64, u64) -> bool) -> String {
    serve(move |target| {
        let page = parameter(target, "page").map_or(1, |page| page.parse().unwrap());
        let record = |i: u64| {
            let id = page * 10 + i;
            match is_float(page, i) {
                true => format!("{{\"id\":{id},\"edited\":{id}.5}}"),
                false => format!("{{\"id\":{id},\"edited\":false}}"),
            }
        };
        let records: Vec<String> = match page {
            1..=6 => (0..10).map(record).collect(),
            _ => Vec::new(),
        };
        let body = format!("{{\"items\": [{}]}}", records.join(","));
        ("200 OK", String::new(), body)
    })
}

/// Serves 8 pages of 10 records with their total. Pages 2 to 8 are sent once all of them are requested.
fn serve_pages_together() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut held: Vec<(TcpStream, u64)> = Vec::new();
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            while !lines.next().unwrap().unwrap().is_empty() {}
            let target = request.split(' ').nth(1).unwrap();
            let page = parameter(target, "page").unwrap().parse().unwrap();
            held.push((stream, page));
            let is_between = |(_, page): &&(TcpStream, u64)| (2..=8).contains(page);
            if held.iter().filter(is_between).count() % 7 == 0 {
                for (mut stream, page) in held.drain(..) {
                    let ids =
                        (page * 10 - 9..=(page * 10).min(80)).map(|id| format!("{{\"id\":{id}}}"));
                    let ids: Vec<String> = ids.collect();
                    let body = format!("{{\"items\":[{}],\"total\":80}}", ids.join(","));
                    let length = body.len();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                    );
                    stream.write_all((head + &body).as_bytes()).unwrap();
                }
            }
        }
    });
    origin
}

/// Serves three records; the first request shall be made again after a hundred years.
fn serve_after_a_century() -> String {
    let mut is_asked = false;
    serve(move |_| match std::mem::replace(&mut is_asked, true) {
        true => ("200 OK", String::new(), ten(0)),
        false => {
            let head = "Retry-After: 3153600000\r\n".to_owned();
            ("429 Too Many Requests", head, String::new())
        }
    })
}

/// Serves a site whose pages all name its first page as their canonical address.
fn serve_pages_of_one_canonical() -> String {
    serve(|target| {
        let (title, links) = match target {
            "/" => ("home", "<a href=\"/a\">a</a> <a href=\"/b\">b</a>"),
            "/a" => ("first", ""),
            "/b" => ("second", ""),
            _ => return ("404 Not Found", String::new(), String::new()),
        };
        let sentence = format!("The page called {title} says this, and says it at some length. ");
        let body = format!(
            "<!doctype html><html lang=en><head><link rel=canonical href='/'><title>{title}</title></head><body>\
             <article><h1>{title}</h1><p>{}</p><p>{}</p></article>{links}</body></html>",
            sentence.repeat(7),
            sentence.repeat(5)
        );
        let head = "Content-Type: text/html; charset=utf-8\r\n".to_owned();
        ("200 OK", head, body)
    })
}
