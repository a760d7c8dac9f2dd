//! Standard output that its reader closes early, where the report says that the rest was not written;
//! and logs that cannot be written.

use std::{fmt::Write as _, fs, io, path::Path, process::Stdio};

use crate::support::{Finished, feedline, finish, run};

/// Runs `arguments` with a standard output that is closed before anything is written.
fn run_closed(folder: &Path, arguments: &[&str]) -> Finished {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut command = feedline(folder);
    command.args(arguments).env("FEEDLINE_LOG", "error");
    finish(command.stdout(writer).output().unwrap())
}

#[test]
fn predictions_that_are_not_read_are_a_warning_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut rows = "a,b,y\n".to_owned();
    for i in 0..200_u32 {
        writeln!(rows, "{},{},{}", i % 17, i % 5, i % 17 + i % 5).unwrap();
    }
    fs::write(folder.join("t.csv"), rows).unwrap();
    let init = ["init", "t.csv", "--to", "p.toml", "--target", "y"];
    run(folder, &init).expect(0);
    let train = ["run", "p.toml", "--set", "train.epochs=1"];
    run(folder, &train).expect(0);
    let predict = ["predict", "p.toml", "t.csv", "--set", "train.epochs=1"];
    let text = run_closed(folder, &predict).expect(0).stderr;
    let warning = "output closed: standard output was closed, so the other predictions";
    assert!(text.contains(warning), "{text}");
    let json = [&predict[..], &["--json"]].concat();
    let json = run_closed(folder, &json).expect(0).stderr;
    assert!(json.contains("\"code\":\"output_closed\""), "{json}");
}

#[test]
fn texts_that_are_not_read_are_a_warning_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let line = "the cat sat on the mat and looked at the dog\n";
    fs::create_dir(folder.join("in")).unwrap();
    for i in 0..80 {
        let text = line.repeat(i % 4 + 1) + &"it ran\n".repeat(i + 1);
        fs::write(folder.join(format!("in/{i}.txt")), text).unwrap();
    }
    let pipeline = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"in/*\"\n\
                    format = \"text\"\n[dataset]\nkind = \"characters\"\n[train]\n\
                    model = { type = \"lstm\", context = 16, width = 8 }\nepochs = 1\n";
    fs::write(folder.join("p.toml"), pipeline).unwrap();
    run(folder, &["run", "p.toml"]).expect(0);
    let options = ["generate", "p.toml", "--prompt", "the", "--tokens", "20"];
    let text = run_closed(folder, &options).expect(0).stderr;
    let warning = "output closed: standard output was closed before all texts were written";
    assert!(text.contains(warning), "{text}");
}

#[test]
fn a_log_that_cannot_be_written_stops_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("t.csv"), "a,b\n1,2\n").unwrap();
    let pipeline =
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"t.csv\"\n";
    fs::write(folder.join("p.toml"), pipeline).unwrap();
    let mut command = feedline(folder);
    command
        .args(["ingest", "p.toml"])
        .env("FEEDLINE_LOG", "debug");
    // Each write to it fails for lack of space.
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    command.stdout(Stdio::piped()).stderr(full);
    let ingest = finish(command.output().unwrap()).expect(0);
    assert!(ingest.stdout.contains("landing zone"), "{ingest:?}");
}

#[test]
fn a_misspelled_filter_of_the_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let schema = |filter: &str| {
        let mut command = feedline(folder.path());
        command.arg("schema").env("FEEDLINE_LOG", filter);
        finish(command.output().unwrap())
    };
    for filter in ["wran", "json", "feedline=wran", "info,feedline_ingest"] {
        let refused = schema(filter).expect(2).stderr;
        let expected = format!("error: `FEEDLINE_LOG` is `{filter}`, which is no filter");
        assert!(refused.starts_with(&expected), "{refused}");
    }
    for filter in [
        "",
        "off",
        "WARN",
        "warn, feedline_ingest=debug",
        "feedline=info,off",
    ] {
        schema(filter).expect(0);
    }
}
