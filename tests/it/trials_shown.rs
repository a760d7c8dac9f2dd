//! The findings that were silent, shown by commands: the outputs in `tests/trials-shown.md` are those of the program.

mod situations;

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use self::situations::{SITUATIONS, Situation};

const DOCUMENT: &str = "tests/trials-shown.md";
/// Environment variable that has the outputs of the program written into the document.
const WRITE: &str = "FEEDLINE_WRITE_TRIALS";

const FENCE: &str = "```";
const PROMPT: &str = "$ ";
/// Longest line of an output, in characters.
const WIDTH: usize = 100;
/// Column of the values in reports, and the indent of their continuation lines.
const VALUES: usize = 19;
/// Indent of any other continuation line.
const INDENT: usize = 4;

/// Lines of reports about sizes, places, hashes and times, which show nothing of a finding.
const LEFT_OUT: [&str; 7] = [
    "  requests ",
    "  landing zone ",
    "  shards ",
    "  fingerprint ",
    "  report ",
    "  dataset ",
    "    last commit ",
];

#[test]
fn each_finding_that_was_silent_is_shown_by_commands_and_the_outputs_of_the_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("tests/trials.md")).unwrap();
    let document = fs::read_to_string(root.join(DOCUMENT)).unwrap();
    let mut sections = document.split("\n## ");
    let mut written = sections.next().unwrap().to_owned();
    let sections: Vec<&str> = sections.collect();
    let findings: Vec<&str> = sections.iter().map(|section| finding_of(section)).collect();
    assert_eq!(findings, SITUATIONS.map(|(finding, _)| finding));
    let mut differences = Vec::new();
    for (section, (finding, situation)) in sections.iter().zip(SITUATIONS) {
        assert!(table.contains(&format!("| {finding} | ")), "{finding}");
        let shown = rerun(section, situation);
        differences.extend(difference(finding, section, &shown));
        written.push_str("\n## ");
        written.push_str(&shown);
    }
    if env::var_os(WRITE).is_some() {
        fs::write(root.join(DOCUMENT), written).unwrap();
        return;
    }
    assert!(
        differences.is_empty(),
        "run this test with {WRITE}=1, and read what has changed in {DOCUMENT}:\n{}",
        differences.join("\n")
    );
}

/// The finding in the heading `ingest 25: a page size above ...`.
fn finding_of(section: &str) -> &str {
    let (finding, _) = section.split_once(": ").unwrap();
    finding
}

/// The first line in which a section differs from what is shown now.
fn difference(finding: &str, section: &str, shown: &str) -> Option<String> {
    if section == shown {
        return None;
    }
    let mut pairs = section.lines().zip(shown.lines());
    let shorter = section.lines().count().min(shown.lines().count());
    let at = pairs.position(|(documented, now)| documented != now);
    let line = |text: &str| {
        let line = text.lines().nth(at.unwrap_or(shorter));
        line.unwrap_or("no line").to_owned()
    };
    Some(format!(
        "{finding}\n  documented: {}\n  now:        {}",
        line(section),
        line(shown)
    ))
}

/// Writes the pipelines of a section, runs its commands, and returns it with their outputs of now.
fn rerun(section: &str, situation: Situation) -> String {
    let folder = tempfile::tempdir().unwrap();
    let origin = situation(folder.path());
    let screen = Screen {
        folder: folder.path(),
        origin: origin.as_deref(),
    };
    let pieces = section.split(FENCE);
    let pieces = pieces.map(|piece| match piece.split_once('\n') {
        Some(("toml", text)) => {
            screen.write_pipeline(text);
            piece.to_owned()
        }
        Some(("console", text)) => format!("console\n{}", screen.rerun(text)),
        _ => piece.to_owned(),
    });
    pieces.collect::<Vec<_>>().join(FENCE)
}

/// The folder in which the commands of a section run.
struct Screen<'a> {
    folder: &'a Path,
    origin: Option<&'a str>,
}

impl Screen<'_> {
    fn write_pipeline(&self, text: &str) {
        let text = text.replace("ORIGIN", self.origin.unwrap_or("ORIGIN"));
        fs::write(self.folder.join("pipeline.toml"), text).unwrap();
    }

    /// Runs the commands in a block, and returns them with their outputs.
    fn rerun(&self, block: &str) -> String {
        let commands = block.lines().filter_map(|line| line.strip_prefix(PROMPT));
        let shown =
            commands.map(|command| format!("{PROMPT}{command}\n{}", self.output_of(command)));
        shown.collect::<Vec<_>>().join("\n")
    }

    /// Runs a command in a shell: its output and, for a command of the program, its exit code.
    fn output_of(&self, command: &str) -> String {
        let script = format!("feedline() {{ \"$0\" \"$@\"; }}\nexec 2>&1\n{command}");
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_feedline")])
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .env("FEEDLINE_LOG", "off")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text
            .lines()
            .filter(|line| !LEFT_OUT.iter().any(|begin| line.starts_with(begin)));
        let mut shown: String = lines.map(|line| fold(&self.mask(line))).collect();
        let code = output.status.code().unwrap();
        if command.starts_with("feedline ") {
            shown.push_str(&format!("exit code {code}\n"));
        } else {
            assert_eq!(code, 0, "{command}: {text}");
        }
        shown
    }

    /// Replaces what differs between runs or between versions of libraries: the server's origin, the folder, the end of
    /// a deferral, and hashes and sizes of data files.
    fn mask(&self, line: &str) -> String {
        let mut line = line.replace(self.folder.to_str().unwrap(), "FOLDER");
        if let Some(origin) = self.origin {
            line = line.replace(origin, "ORIGIN");
        }
        let mut masked = line.clone();
        for behind in line.split(" until ").skip(1) {
            let time = behind.split(' ').next().unwrap().trim_end_matches(':');
            if time.parse::<jiff::Timestamp>().is_ok() {
                masked = masked.replace(time, "TIME");
            }
        }
        // A short hash is the beginning of a whole one.
        for length in [32, 16] {
            let is_hash =
                |word: &&str| word.len() == length && word.chars().all(|c| c.is_ascii_hexdigit());
            let words = line.split(|c: char| !c.is_ascii_alphanumeric());
            for hash in words.filter(is_hash) {
                masked = masked.replace(hash, "HASH");
            }
        }
        for (before, _) in line.match_indices(" bytes") {
            let number = line[..before].rsplit(' ').next().unwrap();
            masked = masked.replace(&format!(" {number} bytes"), " N bytes");
        }
        masked
    }
}

/// Breaks a line between words, so that it has at most [`WIDTH`] characters where its words allow it.
fn fold(line: &str) -> String {
    let indent = if line.starts_with("  ") {
        VALUES
    } else {
        INDENT
    };
    let (mut folded, mut width) = (String::new(), 0);
    for word in line.trim_end().split_inclusive(' ') {
        if width > indent && width + word.trim_end().chars().count() > WIDTH {
            folded.truncate(folded.trim_end().len());
            folded.push('\n');
            folded.push_str(&" ".repeat(indent));
            width = indent;
        }
        folded.push_str(word);
        width += word.chars().count();
    }
    folded.push('\n');
    folded
}
