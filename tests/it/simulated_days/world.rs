//! The simulated world: its true time, and servers whose content is a function of that time.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use jiff::Timestamp;

use crate::support::{Answer, Random, wait};

/// First true time, 2026-01-01T00:00:00Z, in Unix seconds.
pub(super) const START: u64 = 1_767_225_600;
pub(super) const HOUR: u64 = 3_600;
pub(super) const DAY: u64 = 86_400;
/// Longest wait in seconds that a server asks for.
pub(super) const LONGEST_WAIT_S: u64 = 2 * HOUR;
const SHORT_WAIT_S: u64 = 600;
/// Records per page.
const PAGE: u64 = 10;

/// The true time, and the state of the servers.
pub(super) struct World {
    /// Unix time in seconds.
    now: AtomicU64,
    /// Requests to the server of `orders`.
    asked: AtomicU64,
    /// True while this server asks for no wait.
    is_patient: AtomicBool,
    random: Mutex<Random>,
}

impl World {
    /// The world at its first time.
    pub(super) fn new(random: Random) -> Arc<Self> {
        Arc::new(Self {
            now: AtomicU64::new(START),
            asked: AtomicU64::new(0),
            is_patient: AtomicBool::new(false),
            random: Mutex::new(random),
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    pub(super) fn advance(&self, seconds: u64) {
        self.now.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Requests to the server of `orders` so far.
    pub(super) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// Chooses if the server of `orders` asks for waits.
    pub(super) fn set_patient(&self, is_patient: bool) {
        self.is_patient.store(is_patient, Ordering::SeqCst);
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.lock().unwrap().below(bound)
    }

    /// A response 429 to one request in six, with `Retry-After` as seconds or as a date.
    fn ask_for_a_wait(&self) -> Option<Answer> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let is_patient = self.is_patient.load(Ordering::SeqCst);
        if self.below(6) > 0 || is_patient {
            return None;
        }
        let now = self.now();
        let wait_s = [SHORT_WAIT_S, LONGEST_WAIT_S][usize::from(self.below(2) == 0)];
        let head = match self.below(2) {
            0 => format!("Retry-After: {wait_s}\r\n"),
            _ => format!(
                "Date: {}\r\nRetry-After: {}\r\n",
                http_date(now),
                http_date(now + wait_s)
            ),
        };
        Some(("429 Too Many Requests", head, String::new()))
    }
}

fn timestamp(unix_s: u64) -> Timestamp {
    Timestamp::from_second(i64::try_from(unix_s).unwrap()).unwrap()
}

fn http_date(unix_s: u64) -> String {
    let at = timestamp(unix_s);
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Seconds from the start to a timestamp of a request.
fn since_start(text: &str) -> u64 {
    let at: Timestamp = text.parse().unwrap();
    u64::try_from(at.as_second()).unwrap().saturating_sub(START)
}

/// Value of a query parameter.
fn param(target: &str, name: &str) -> Option<String> {
    let query = target.split_once('?')?.1;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    Some(value.replace("%3A", ":"))
}

/// The page of `all` records that a request names.
fn page(target: &str, all: Range<u64>, record: impl Fn(u64) -> String) -> String {
    let number: u64 = param(target, "page").map_or(1, |page| page.parse().unwrap());
    let from = all.start + (number - 1) * PAGE;
    let records: Vec<String> = (from..all.end.min(from + PAGE)).map(record).collect();
    format!(r#"{{"items":[{}]}}"#, records.join(","))
}

/// A list that grows at its end: record `n` exists from `n * every_s` seconds after the start on.
#[derive(Clone, Copy)]
pub(super) struct Feed {
    pub(super) name: &'static str,
    every_s: u64,
}

pub(super) const EVENTS: Feed = Feed {
    name: "events",
    every_s: HOUR / 3,
};
pub(super) const ITEMS: Feed = Feed {
    name: "items",
    every_s: 2 * HOUR,
};
pub(super) const ORDERS: Feed = Feed {
    name: "orders",
    every_s: HOUR / 2,
};

impl Feed {
    fn count(self, now: u64) -> u64 {
        (now - START) / self.every_s + 1
    }

    /// Keys of the records that exist at `now`.
    pub(super) fn keys(self, now: u64) -> impl Iterator<Item = String> {
        (0..self.count(now)).map(move |n| format!("{} {n}", self.name))
    }

    /// The page that a request names, of the records from its `since` or `from` on.
    fn page(self, target: &str, now: u64) -> String {
        let since = param(target, "since").map(|at| since_start(&at).div_ceil(self.every_s));
        let from = param(target, "from").map(|n| n.parse::<i64>().unwrap());
        let from = from.map(|n| u64::try_from(n).unwrap_or_default());
        let first = since.or(from).unwrap_or_default();
        page(target, first..self.count(now), |n| {
            let (name, at) = (self.name, timestamp(START + n * self.every_s));
            format!(r#"{{"key":"{name} {n}","number":{n},"updated_at":"{at}"}}"#)
        })
    }
}

/// Numbers of the records of a day, which exist once it is over.
fn numbers_of_day(day: u64, now: u64) -> Range<u64> {
    let is_over = START + (day + 1) * DAY <= now;
    0..if is_over { 21 + day % 12 } else { 0 }
}

/// Keys of the records of all days that are over at `now`.
pub(super) fn daily_keys(now: u64) -> impl Iterator<Item = String> {
    let days = 0..(now - START) / DAY;
    days.flat_map(move |day| numbers_of_day(day, now).map(move |n| format!("daily {day} {n}")))
}

/// The page that a request names, of the records of its day.
fn daily_page(target: &str, now: u64) -> String {
    let from = param(target, "from").unwrap_or_default();
    let day = since_start(&format!("{from}T00:00:00Z")) / DAY;
    page(target, numbers_of_day(day, now), |n| {
        format!(r#"{{"key":"daily {day} {n}","number":{n}}}"#)
    })
}

/// Starts the server of each source, and puts its origin in the place of the source's name in
/// capitals. Each has an origin of its own, since a wait holds for all sources of one origin.
pub(super) fn start_servers(world: &Arc<World>, pipeline: &str) -> String {
    let (events, daily) = (Arc::clone(world), Arc::clone(world));
    let (items, orders) = (Arc::clone(world), Arc::clone(world));
    let dated = |now, body| ("200 OK", format!("Date: {}\r\n", http_date(now)), body);
    let plain = |body| ("200 OK", String::new(), body);
    let events = serve_each(move |target| {
        wait(Duration::from_millis(events.below(4)));
        dated(events.now(), EVENTS.page(target, events.now()))
    });
    let daily = serve_each(move |target| dated(daily.now(), daily_page(target, daily.now())));
    let items = serve_each(move |target| plain(ITEMS.page(target, items.now())));
    let orders = serve_each(move |target| {
        wait(Duration::from_millis(orders.below(4)));
        let asked = orders.ask_for_a_wait();
        asked.unwrap_or_else(|| plain(ORDERS.page(target, orders.now())))
    });
    pipeline
        .replace("EVENTS", &events)
        .replace("DAILY", &daily)
        .replace("ITEMS", &items)
        .replace("ORDERS", &orders)
}

/// Serves HTTP on loopback, each connection in its own thread: a stopped client delays no other.
/// Returns the origin.
fn serve_each(respond: impl Fn(&str) -> Answer + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let respond = Arc::new(respond);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let respond = Arc::clone(&respond);
            // An error means that the client was killed.
            thread::spawn(move || stream.and_then(|stream| exchange(stream, &*respond)));
        }
    });
    origin
}

fn exchange(stream: TcpStream, respond: &impl Fn(&str) -> Answer) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut header = String::new();
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    let Some(target) = request.split(' ').nth(1) else {
        return Ok(());
    };
    let (status, head, body) = respond(target);
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status}\r\n{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    reader.get_mut().write_all(response.as_bytes())
}
