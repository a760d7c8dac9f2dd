//! `feedline ingest` and its subcommands.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use feedline_schemas::units::ByteSize;

use super::pipeline::{Detail, Options, Pipeline, RejectRule};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Ingest {
    #[command(subcommand)]
    pub(crate) command: Option<IngestCommand>,
    /// Pipeline file (TOML)
    #[arg(value_name = "PIPELINE.toml", required = true)]
    pub(crate) file: Option<PathBuf>,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(flatten)]
    pub(crate) rejects: RejectRule,
    #[command(flatten)]
    pub(crate) detail: Detail,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IngestCommand {
    /// Show the status of the sources, from their commit logs
    Status(Pipeline),
    /// Read the commit logs and every file that they name, and show all damage; changes nothing.
    /// The exit code is 1 if anything is damaged
    Verify(VerifyLanding),
    /// Check the commit logs and all files that they name, restore lost files from copies, and
    /// truncate a damaged log after its last valid entry
    Repair(RepairLogs),
    /// End the wait that a server has asked for: the next run of a deferred source sends requests
    /// at once
    Resume(ResumeSources),
    /// Restart a source from its beginning: landed data is saved under another name and no longer
    /// counts
    Reset(ResetSource),
    /// Re-read slices or files in place of their landed data, or an incremental source from a cursor
    /// on: its changed records land too
    Reread(RereadSource),
    /// Take a source back to an entry of its log: later rows no longer count, and the next run
    /// reads from there
    Rewind(RewindSource),
    /// Merge the small data files of a source into large ones, and delete superseded files as
    /// `ingest.retention` says
    Compact(CompactSource),
    /// Write Delta tables over landed files, for DuckDB, polars, Spark and others, or bring them up to
    /// the commit logs
    Delta(WriteDelta),
    /// Retry the rejected records of a source under its current contract; matching ones land
    RetryRejects(RetryRejects),
    /// Delete batches of a source: their rows, rejected records and archived responses
    Delete(DeleteBatches),
    /// Re-parse archived responses (`archive_raw`) with the current settings, without sending
    /// requests
    Replay(ReplayArchive),
}

#[derive(Debug, Args)]
pub(crate) struct VerifyLanding {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RepairLogs {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Report the damage and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeSources {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// Only this source; by default all deferred ones
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ResetSource {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// The source
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Report what would be saved and re-read, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RereadSource {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// The source
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Lower end of the range of slices, in the format of `slices.start`; or the cursor to
    /// start an incremental source from
    #[arg(long, value_name = "FROM")]
    pub(crate) from: Option<String>,
    /// Upper end of the range of slices, exclusive
    #[arg(long, value_name = "TO", requires = "from")]
    pub(crate) to: Option<String>,
    /// Files by their addresses or the ends of these, such as `2026-03-*.csv`
    #[arg(long = "file", value_name = "PATTERN", conflicts_with_all = ["from", "to"], required_unless_present = "from")]
    pub(crate) files: Option<String>,
    /// Drop the rows of files that are not at `url`; by default such files are refused
    #[arg(long, requires = "files")]
    pub(crate) missing_too: bool,
    /// Report what would be re-read, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) rejects: RejectRule,
}

#[derive(Debug, Args)]
pub(crate) struct RewindSource {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// The source
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Last entry that counts, as in the column `_feedline_seq`
    #[arg(long, value_name = "SEQUENCE")]
    pub(crate) to: u64,
    /// Report what would no longer count and what would be read again, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompactSource {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// The source
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Size of the merged files, such as `64 MiB`
    #[arg(long, value_name = "BYTES", default_value = "128 MiB", value_parser = ByteSize::parse)]
    pub(crate) target_bytes: ByteSize,
    /// Report what would be merged and deleted, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WriteDelta {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// Only this source
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Remove the logs of the tables and write them again, such as after another program has
    /// changed them; landed files stay
    #[arg(long)]
    pub(crate) rebuild: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RetryRejects {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// The source
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Count what would land, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) rejects: RejectRule,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteBatches {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// The source
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Sequence number of the batch, as in the column `_feedline_seq`; may be repeated
    #[arg(long, value_name = "SEQUENCE", required = true)]
    pub(crate) batch: Vec<u64>,
    /// Report what would be deleted, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArchive {
    #[command(flatten)]
    pub(crate) pipeline: Pipeline,
    /// URL or path of the root folder with the archive; the pipeline's own root must be another
    /// one, such as by `--set pipeline.root=FOLDER`
    #[arg(long, value_name = "ROOT")]
    pub(crate) from: String,
    /// Only this source; by default all with an archive
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    #[command(flatten)]
    pub(crate) rejects: RejectRule,
}
