//! `docs/reference/cli.md`, generated from the commands of clap.

use std::{env, fmt::Write as _, fs, path::Path};

use clap::{Arg, Command, CommandFactory as _};

use super::Cli;

/// Page in the checkout.
const PAGE: &str = "docs/reference/cli.md";
/// Columns of a line.
const WIDTH: usize = 100;

const INTRODUCTION: &str = r#"# Command line

All commands and options, generated from the program. `feedline COMMAND --help` prints the same.

`PIPELINE.toml` is a pipeline file, see [configuration](configuration/README.md). `--set KEY=VALUE`
overrides a key of it for one run. `--json` prints the report as one JSON object, see
[reports](formats/reports.md). The [exit code](exit-codes.md) says what to do next.

The examples run in this order in one folder, with this table of 400 homes:

```sh
awk 'BEGIN { print "id,sold,area,rooms,district,price"
  for (i = 1; i <= 400; i++) {
    area = 40 + i * 7 % 90; rooms = 1 + i * 13 % 5; day = 1 + i % 28
    printf "%d,2026-01-%02d,%d,%d,%s,", i, day, area, rooms, i % 3 ? "north" : "south"
    print 900 + area * 31 + rooms * 170 } }' > homes.csv
```
"#;

/// An example of a command, with the comment of the book's tests before it.
struct Example {
    command: &'static str,
    note: &'static str,
    line: &'static str,
}

const fn example(command: &'static str, note: &'static str, line: &'static str) -> Example {
    Example {
        command,
        note,
        line,
    }
}

const UNTIL_SIGNAL: &str = "<!-- norun: runs until a signal ends it -->\n";

/// One for each command that does something.
const EXAMPLES: &[Example] = &[
    example("init", "", "feedline init homes.csv"),
    example("check", "", "feedline check homes.toml"),
    example(
        "run",
        "<!-- run: sed -i 's/^target/profile = true\\ntarget/' homes.toml -->\n",
        "feedline run homes.toml --set train.epochs=5",
    ),
    example("ingest", "", "feedline ingest homes.toml"),
    example("ingest status", "", "feedline ingest status homes.toml"),
    example("ingest verify", "", "feedline ingest verify homes.toml"),
    example(
        "ingest repair",
        "",
        "feedline ingest repair homes.toml --dry-run",
    ),
    example("ingest resume", "", "feedline ingest resume homes.toml"),
    example(
        "ingest reset",
        "",
        "feedline ingest reset homes.toml homes --dry-run",
    ),
    example(
        "ingest reread",
        "",
        "feedline ingest reread homes.toml homes --file homes.csv --dry-run",
    ),
    example(
        "ingest rewind",
        "",
        "feedline ingest rewind homes.toml homes --to 0 --dry-run",
    ),
    example(
        "ingest compact",
        "",
        "feedline ingest compact homes.toml homes --dry-run",
    ),
    example("ingest delta", "", "feedline ingest delta homes.toml"),
    example(
        "ingest retry-rejects",
        "",
        "feedline ingest retry-rejects homes.toml homes --dry-run",
    ),
    example(
        "ingest delete",
        "",
        "feedline ingest delete homes.toml homes --batch 0 --dry-run",
    ),
    example(
        "ingest replay",
        "<!-- norun: no source of this page has archived responses -->\n",
        "feedline ingest replay api.toml --from feedline-data/api --set pipeline.root=replayed",
    ),
    example("serve", UNTIL_SIGNAL, "feedline serve api.toml"),
    example("shards build", "", "feedline shards build homes.toml"),
    example(
        "shards verify",
        "",
        "feedline shards verify feedline-data/homes/dataset",
    ),
    example(
        "shards inspect",
        "",
        "feedline shards inspect feedline-data/homes/dataset",
    ),
    example(
        "shards prune",
        "",
        "feedline shards prune feedline-data/homes/dataset --dry-run",
    ),
    example(
        "shards expect",
        "",
        "feedline shards expect homes.toml --to expect.toml",
    ),
    example(
        "export",
        "",
        "feedline export homes.toml --to exported --format huggingface",
    ),
    example("train", "", "feedline train homes.toml --resume"),
    example("eval", "", "feedline eval homes.toml --split validation"),
    example(
        "predict",
        "",
        "feedline predict homes.toml homes.csv --to predictions.csv",
    ),
    example(
        "tune",
        "<!-- run: printf '\\n[tune]\\ntrials = 2\\n\\n[[tune.parameter]]\\n' >> homes.toml -->\n\
         <!-- run: printf 'key = \"train.learning_rate\"\\nlow = 0.001\\n' >> homes.toml -->\n\
         <!-- run: echo 'high = 0.01' >> homes.toml -->\n",
        "feedline tune homes.toml --set train.epochs=3",
    ),
    example("runs list", "", "feedline runs list homes.toml"),
    example(
        "runs compare",
        "",
        "feedline runs compare homes.toml newest best",
    ),
    example(
        "weights export",
        "",
        "feedline weights export homes.toml --run newest --to weights.safetensors",
    ),
    example(
        "generate",
        "<!-- norun: needs a model of texts -->\n",
        "feedline generate texts.toml --prompt \"Once upon a time\" --top-k 40",
    ),
    example(
        "edit",
        "<!-- norun: needs a model of texts -->\n",
        "feedline edit texts.toml --to edited",
    ),
    example("plan", "", "feedline plan homes.toml"),
    example("preview", "", "feedline preview homes.csv --rows 2"),
    example("explain", "", "feedline explain dataset.split.key"),
    example("schema", "", "feedline schema > pipeline.schema.json"),
    example(
        "completions",
        "",
        "feedline completions bash > feedline.bash",
    ),
    example("man", "", "feedline man man"),
    example(
        "bench loader",
        "",
        "feedline bench loader feedline-data/homes/dataset",
    ),
    example(
        "cluster scheduler",
        UNTIL_SIGNAL,
        "FEEDLINE_CLUSTER_SECRET=... feedline cluster scheduler --listen 10.0.0.5:50050",
    ),
    example(
        "cluster worker",
        UNTIL_SIGNAL,
        "FEEDLINE_CLUSTER_SECRET=... feedline cluster worker --root s3://bucket/homes",
    ),
];

/// Breaks a text into lines. The first begins after `first`, the others after spaces of its width.
/// A word that Markdown would read as a list or a heading never begins a line.
fn wrap(first: &str, text: &str) -> String {
    let indent = " ".repeat(first.len());
    let (mut out, mut used) = (first.to_owned(), first.len());
    let mut is_first = true;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        let is_marker =
            word.starts_with(['-', '+', '*', '#', '>', '=']) || ["1.", "1)"].contains(&word);
        if is_first {
            is_first = false;
        } else if used + 1 + width > WIDTH && !is_marker {
            out.push('\n');
            out.push_str(&indent);
            used = indent.len();
        } else {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out.push('\n');
    out
}

/// The text with `<` escaped outside of code.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match at % 2 {
        0 => part.replace('<', "&lt;"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// A sentence with its full stop.
fn sentence(text: &str) -> String {
    let text = escaped(text.trim());
    match text.ends_with(['.', '?', '!']) || text.is_empty() {
        true => text,
        false => format!("{text}."),
    }
}

/// The option or value as it is typed.
fn typed(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default();
    let values: Vec<String> = values.iter().map(|name| format!("<{name}>")).collect();
    let values = match argument.get_action().takes_values() {
        true => values.join(" "),
        false => String::new(),
    };
    if argument.is_positional() {
        return format!("`{values}`");
    }
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    format!("`{}`", format!("{} {values}", names.join(", ")).trim())
}

fn describe(argument: &Arg, out: &mut String) {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let mut text = format!("{}: ", typed(argument));
    text += &sentence(&help.map(ToString::to_string).unwrap_or_default());
    let takes_values = argument.get_action().takes_values();
    let values = argument.get_possible_values();
    let values: Vec<String> = values
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if takes_values && !values.is_empty() {
        text += &format!(" Values: {}.", values.join(", "));
    }
    let defaults = argument.get_default_values().iter();
    let defaults: Vec<String> = defaults
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if takes_values && !defaults.is_empty() {
        text += &format!(" Default: {}.", defaults.join(", "));
    }
    out.push_str(&wrap("- ", &text));
}

/// Writes a command and those below it.
fn write(command: &mut Command, path: &str, depth: usize, out: &mut String) {
    let title = format!("feedline {path}");
    writeln!(out, "\n{} `{title}`\n", "#".repeat(depth + 1)).unwrap();
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    out.push_str(&wrap("", &sentence(&about)));
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:");
    let lines = usage.lines().map(|line| line.trim().to_owned());
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    writeln!(out, "\n```text\n{}\n```", lines.join("\n")).unwrap();
    let arguments = command.get_arguments();
    let arguments: Vec<&Arg> = arguments
        .filter(|argument| !argument.is_hide_set() && argument.get_id() != "help")
        .collect();
    if !arguments.is_empty() {
        out.push('\n');
    }
    for argument in arguments {
        describe(argument, out);
    }
    let example = EXAMPLES.iter().find(|example| example.command == path);
    let has_commands = command.get_subcommands().any(|own| !own.is_hide_set());
    match example {
        Some(Example { note, line, .. }) => {
            writeln!(out, "\n{note}```sh\n{line}\n```").unwrap();
        }
        None => assert!(has_commands, "`{title}` has no example"),
    }
    for own in command.get_subcommands_mut() {
        if !own.is_hide_set() && own.get_name() != "help" {
            let path = format!("{path} {}", own.get_name());
            write(own, &path, depth + 1, out);
        }
    }
}

/// Path of each command that is shown.
fn paths(command: &Command, prefix: &str, all: &mut Vec<String>) {
    for own in command.get_subcommands() {
        if !own.is_hide_set() && own.get_name() != "help" {
            let path = format!("{prefix} {}", own.get_name());
            let path = path.trim().to_owned();
            paths(own, &path, all);
            all.push(path);
        }
    }
}

/// Writes the page instead with `FEEDLINE_WRITE_SCHEMAS=1`. The page has all commands, so only a
/// program with all of them is compared.
#[test]
fn the_reference_of_commands_is_that_of_the_program() {
    if !cfg!(feature = "cluster") {
        return;
    }
    let mut command = Cli::command();
    command.build();
    let mut all = Vec::new();
    paths(&command, "", &mut all);
    for example in EXAMPLES {
        let command = example.command;
        assert!(all.iter().any(|path| path == command), "no `{command}`");
    }
    let mut page = INTRODUCTION.to_owned();
    for own in command.get_subcommands_mut() {
        if !own.is_hide_set() && own.get_name() != "help" {
            let path = own.get_name().to_owned();
            write(own, &path, 1, &mut page);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if env::var_os("FEEDLINE_WRITE_SCHEMAS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found, page,
        "{PAGE} has drifted: run the test with FEEDLINE_WRITE_SCHEMAS=1 and commit the file"
    );
}

#[test]
fn a_wrapped_line_never_begins_like_a_list() {
    let text = format!("{} - not a list", "word ".repeat(19).trim());
    let wrapped = wrap("- ", &text);
    assert!(
        wrapped
            .lines()
            .skip(1)
            .all(|line| !line.trim_start().starts_with('-')),
        "{wrapped}"
    );
}
