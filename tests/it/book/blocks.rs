//! Running the blocks of pages, each page in an empty folder of its own.

use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use feedline_schemas::config::{Override, load};

use super::{
    Page,
    markdown::{Block, Item, items},
    pages,
};

/// Longest time of a block. The slowest takes a few seconds; machines of tests are busy.
const LIMIT: Duration = Duration::from_secs(300);
/// Most characters of output that a failure shows.
const SHOWN: usize = 3000;
/// Slowest pages that are listed.
const SLOWEST: usize = 5;
/// Languages of blocks that are shown, or written to a file.
const OTHER_LANGUAGES: [&str; 9] = [
    "", "csv", "json", "ndjson", "text", "sql", "yaml", "rust", "markdown",
];

/// Counts of blocks, and reasons of those that did not run.
#[derive(Debug, Default)]
struct Tally {
    pages: usize,
    ran: usize,
    python: usize,
    parsed: usize,
    written: usize,
    shown: usize,
    skipped: BTreeMap<String, usize>,
    /// Milliseconds and path of each page.
    times: Vec<(u128, String)>,
}

impl Tally {
    fn skip(&mut self, reason: &str) {
        *self.skipped.entry(reason.to_owned()).or_default() += 1;
    }

    fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.ran += other.ran;
        self.python += other.python;
        self.parsed += other.parsed;
        self.written += other.written;
        self.shown += other.shown;
        self.times.extend(other.times);
        for (reason, count) in other.skipped {
            *self.skipped.entry(reason).or_default() += count;
        }
    }

    fn text(&self) -> String {
        let skipped: usize = self.skipped.values().sum();
        let mut text = format!(
            "book: {} pages; {} blocks of sh and {} of python ran, {} fragments parsed, {} files written, {} shown, {skipped} skipped\n",
            self.pages, self.ran, self.python, self.parsed, self.written, self.shown
        );
        for (reason, count) in &self.skipped {
            writeln!(text, "  skipped {count}: {reason}").unwrap();
        }
        let mut times: Vec<&(u128, String)> = self.times.iter().collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        for (time, path) in times.into_iter().take(SLOWEST) {
            writeln!(text, "  {:>4}.{} s: {path}", time / 1000, time % 1000 / 100).unwrap();
        }
        text
    }
}

/// Programs that blocks use.
#[derive(Clone, Debug)]
struct Tools {
    path: OsString,
    python: Option<PathBuf>,
    limit: Duration,
}

impl Tools {
    /// The program under test, and the Python that the environment names.
    fn of_environment() -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_feedline"));
        let folders = env::var_os("PATH").unwrap_or_default();
        let own = program.parent().unwrap().to_owned();
        let all = [own].into_iter().chain(env::split_paths(&folders));
        Self {
            path: env::join_paths(all).unwrap(),
            python: env::var_os("FEEDLINE_PYTHON_WHEEL").map(PathBuf::from),
            limit: LIMIT,
        }
    }
}

/// A page while it is run.
struct PageRun<'a> {
    tools: &'a Tools,
    folder: tempfile::TempDir,
    /// Process groups of the commands, ended with the page.
    groups: Vec<u32>,
    tally: Tally,
}

impl Drop for PageRun<'_> {
    fn drop(&mut self) {
        for group in &self.groups {
            end(*group);
        }
    }
}

/// Ends all processes of a group that still run.
fn end(group: u32) {
    let mut kill = Command::new("kill");
    kill.args(["-KILL", "--", &format!("-{group}")]);
    let _ended = kill.stderr(Stdio::null()).status();
}

/// The end of a text.
fn tail(text: &str) -> &str {
    let skipped = text.chars().count().saturating_sub(SHOWN);
    let start = text.char_indices().nth(skipped);
    start.map_or("", |(at, _)| &text[at..])
}

impl<'a> PageRun<'a> {
    fn new(tools: &'a Tools) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for own in ["page", "home"] {
            fs::create_dir(folder.path().join(own)).unwrap();
        }
        Self {
            tools,
            folder,
            groups: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Runs a command to its end, in the page's folder and a process group of its own.
    fn execute(&mut self, program: &OsStr, arguments: &[&str]) -> Result<ExitStatus, String> {
        let own = self.folder.path();
        let file = |name| File::create(own.join(name)).unwrap();
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(own.join("page"))
            .env("PATH", &self.tools.path)
            .env("HOME", own.join("home"))
            .env_remove("FEEDLINE_LOG")
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{} does not start: {error}", program.display()))?;
        let group = child.id();
        self.groups.push(group);
        let (sender, ended) = mpsc::channel();
        let waiting = thread::spawn(move || sender.send(child.wait()).is_ok());
        let status = ended.recv_timeout(self.tools.limit);
        if status.is_err() {
            end(group);
        }
        waiting.join().unwrap();
        match status {
            Ok(status) => Ok(status.unwrap()),
            Err(_) => Err(format!(
                "it ran for more than {} s and was killed{}",
                self.tools.limit.as_secs(),
                self.output()
            )),
        }
    }

    fn output(&self) -> String {
        let read = |name| {
            let bytes = fs::read(self.folder.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (out, errors) = (read("stdout"), read("stderr"));
        format!(
            "\nstandard output:\n{}\nstandard error:\n{}",
            tail(&out),
            tail(&errors)
        )
    }

    /// Runs a command that must end with `code`.
    fn expect(&mut self, program: &OsStr, arguments: &[&str], code: i32) -> Result<(), String> {
        let status = self.execute(program, arguments)?;
        if status.code() == Some(code) {
            return Ok(());
        }
        Err(format!(
            "ended with {status}, expected {code}{}",
            self.output()
        ))
    }

    fn shell(&mut self, command: &str, code: i32) -> Result<(), String> {
        self.expect(OsStr::new("bash"), &["-e", "-c", command], code)
    }

    fn run_item(&mut self, item: &Item) -> Result<(), String> {
        match item {
            Item::Hidden { command, .. } => self.shell(command, 0),
            Item::Block(block) => self.run_block(block),
        }
    }

    fn run_block(&mut self, block: &Block) -> Result<(), String> {
        let note = |name: &str| block.notes.get(name);
        let Block { text, language, .. } = block;
        if let Some(name) = note("file") {
            let file = self.folder.path().join("page").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).map_err(|error| format!("`{name}`: {error}"))?;
            self.tally.written += 1;
            return Ok(());
        }
        if let Some(reason) = note("norun") {
            if reason.is_empty() {
                return Err("`norun` needs a reason".to_owned());
            }
            self.tally.skip(reason);
            return Ok(());
        }
        let code = note("exit").map_or(Ok(0), |code| code.parse());
        let code = code.map_err(|error| format!("`exit`: {error}"))?;
        match language.as_str() {
            "sh" => {
                self.tally.ran += 1;
                self.shell(text, code)
            }
            "python" => match self.tools.python.clone() {
                Some(python) => {
                    self.tally.python += 1;
                    self.expect(python.as_os_str(), &["-c", text], code)
                }
                None => {
                    self.tally
                        .skip("`FEEDLINE_PYTHON_WHEEL` names no Python with the wheel");
                    Ok(())
                }
            },
            "toml" => {
                self.tally.parsed += 1;
                parse_fragment(text)
            }
            other if OTHER_LANGUAGES.contains(&other) => {
                self.tally.shown += 1;
                Ok(())
            }
            other => Err(format!("a block of `{other}` is neither run nor shown")),
        }
    }
}

/// Reads a fragment as a pipeline, with a name where it has none.
fn parse_fragment(text: &str) -> Result<(), String> {
    let table: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
    let name = "pipeline.name=x".parse::<Override>()?;
    let is_named = table
        .get("pipeline")
        .is_some_and(|own| own.get("name").is_some());
    let overrides = if is_named { vec![] } else { vec![name] };
    let loaded = load("fragment", text, &overrides);
    loaded.map(drop).map_err(|error| error.to_string())
}

/// Runs a page, up to its first failure.
fn run_page(page: &Page, tools: &Tools) -> Result<Tally, String> {
    let fail = |line: usize, reason: String| format!("{}:{line}: {reason}", page.path);
    let items = items(&page.text).map_err(|reason| format!("{}: {reason}", page.path))?;
    let mut run = PageRun::new(tools);
    run.tally.pages = 1;
    #[expect(
        clippy::disallowed_methods,
        reason = "the report names the slowest pages; nothing depends on the time"
    )]
    let begun = Instant::now();
    for item in &items {
        let line = match item {
            Item::Hidden { line, .. } => *line,
            Item::Block(block) => block.line,
        };
        run.run_item(item).map_err(|reason| fail(line, reason))?;
    }
    let time = begun.elapsed().as_millis();
    run.tally.times.push((time, page.path.clone()));
    Ok(std::mem::take(&mut run.tally))
}

/// Runs pages at a time, as many as there are processors.
fn run_pages(pages: &[Page], tools: &Tools) -> (Tally, Vec<String>) {
    let next = AtomicUsize::new(0);
    let results = Mutex::new((Tally::default(), Vec::new()));
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(page) = pages.get(next.fetch_add(1, SeqCst)) {
                    let result = run_page(page, tools);
                    let mut results = results.lock().unwrap();
                    match result {
                        Ok(tally) => results.0.add(tally),
                        Err(failure) => results.1.push(failure),
                    }
                }
            });
        }
    });
    results.into_inner().unwrap()
}

#[test]
fn every_block_of_the_book_runs() {
    let tools = Tools::of_environment();
    let word = env::var_os("FEEDLINE_BOOK_PAGE");
    let word = word
        .map(|word| word.into_string().unwrap())
        .unwrap_or_default();
    let mut pages = pages();
    pages.retain(|page| page.path.contains(&word));
    assert!(!pages.is_empty(), "no page has `{word}` in its path");
    let (tally, failures) = run_pages(&pages, &tools);
    // Written directly, so that the counts of a passing test are shown too.
    let _shown = io::stderr().write_all(tally.text().as_bytes());
    assert!(failures.is_empty(), "{}", described(&failures));
}

/// The failures with their output, and their first lines once more at the end: of a long output
/// only the end may be kept.
fn described(failures: &[String]) -> String {
    let first = failures.iter().filter_map(|failure| failure.lines().next());
    let first: Vec<&str> = first.collect();
    format!(
        "{}\n\nfailed blocks:\n{}",
        failures.join("\n\n"),
        first.join("\n")
    )
}

/// The failure of a page with this text.
fn failure(text: &str) -> String {
    failure_within(text, LIMIT)
}

/// The failure of a page with this text, whose commands have this time limit.
fn failure_within(text: &str, limit: Duration) -> String {
    let tools = Tools {
        limit,
        ..Tools::of_environment()
    };
    let page = Page {
        path: "docs/page.md".to_owned(),
        text: text.to_owned(),
    };
    let (_, failures) = run_pages(&[page], &tools);
    failures.join("\n")
}

#[test]
fn a_block_with_another_exit_code_fails_its_page_with_its_line_and_output() {
    let text = "# A\n\n```sh\necho begun\necho broken >&2\nfalse\necho never\n```\n";
    let failure_text = failure(text);
    assert!(
        failure_text.starts_with("docs/page.md:3: ended with"),
        "{failure_text}"
    );
    assert!(
        failure_text.contains("begun\n") && failure_text.contains("broken\n"),
        "{failure_text}"
    );
    assert!(!failure_text.contains("never"), "{failure_text}");
    let expected =
        "<!-- exit: 3 -->\n```sh\nexit 3\n```\n<!-- run: echo 1 > a -->\n```sh\ncat a\n```\n";
    assert_eq!(failure(expected), "");
    assert!(failure("<!-- exit: 3 -->\n```sh\ntrue\n```\n").contains("expected 3"));
}

#[test]
fn the_program_under_test_reads_a_file_that_the_page_wrote() {
    let text = "<!-- file: a/rows.csv -->\n```csv\na,b\n1,2\n3,4\n```\n\n```sh\nfeedline preview a/rows.csv\n```\n";
    assert_eq!(failure(text), "");
    let wrong = "```sh\nfeedline preview a/rows.csv\n```\n";
    assert!(failure(wrong).contains("docs/page.md:1: "));
}

#[test]
fn a_block_that_does_not_end_is_killed_with_all_that_it_started() {
    let text = "```sh\n(while true; do date > ticks; sleep 0.05; done) &\nsleep 60\n```\n";
    let failure = failure_within(text, Duration::from_secs(2));
    assert!(failure.contains("it ran for more than 2 s"), "{failure}");
}

#[test]
fn a_fragment_with_an_unknown_key_fails_its_page() {
    assert_eq!(failure("```toml\n[train]\nepochs = 3\n```\n"), "");
    let wrong = failure("# A\n\n```toml\n[train]\nepoch = 3\n```\n");
    assert!(
        wrong.starts_with("docs/page.md:3: ") && wrong.contains("`epochs`"),
        "{wrong}"
    );
    assert!(failure("```fortran\nEND\n```\n").contains("neither run nor shown"));
    assert!(failure("<!-- norun: -->\n```sh\nfalse\n```\n").contains("needs a reason"));
}
