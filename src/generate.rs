//! `feedline generate`: texts continued by a trained language model.
//!
//! Standard output has each text as it is made, behind its prompt; the report is on standard error. With `--json` the report,
//! which has the texts, is all of standard output.

use std::{
    cell::Cell,
    fmt::{self, Write as _},
    io::{ErrorKind, IsTerminal as _, Read as _, Write as _},
    sync::atomic::Ordering,
};

use anyhow::Context as _;
use feedline_preprocess::TextEncoder;
use feedline_schemas::report::{
    GenerateReport, GeneratedEnd, GeneratedText, GeneratingRule, Warning,
};
use feedline_trainer::{ChosenRun, Continuation, SpecialIds, TextGenerator, check_rule};

use crate::{
    exit::shown,
    output::{Text, counted, line, used_run, write_warnings},
    stop::Stop,
};

/// Most bytes of a prompt from standard input.
const PROMPT_BYTES: u64 = 16 << 20;

/// Line between two texts.
const BETWEEN: &str = "\n---\n";

/// Prompt and model of generated texts.
pub(crate) struct Generate {
    pub(crate) prompt: String,
    pub(crate) texts: u32,
    pub(crate) rule: GeneratingRule,
    /// Writes the texts to standard output as they are made.
    pub(crate) writes: bool,
    pub(crate) encoder: TextEncoder,
    pub(crate) chosen: ChosenRun,
    pub(crate) context: feedline_trainer::Context,
    pub(crate) stop: Stop,
}

/// The prompt of the options, from standard input for `-`.
///
/// # Errors
/// Standard input that cannot be read, or is no UTF-8.
pub(crate) fn prompt(given: String) -> anyhow::Result<String> {
    if given != "-" {
        return Ok(given);
    }
    if std::io::stdin().is_terminal() {
        tracing::warn!("the prompt is read from standard input; end it with Ctrl-D");
    }
    let mut prompt = String::new();
    let read = std::io::stdin()
        .take(PROMPT_BYTES)
        .read_to_string(&mut prompt);
    let bytes = read.context("cannot read the prompt from standard input")?;
    anyhow::ensure!(
        (bytes as u64) < PROMPT_BYTES,
        "the prompt on standard input has 16 MiB or more; give a shorter one"
    );
    let line = prompt.strip_suffix('\n').unwrap_or(&prompt);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

impl Generate {
    /// Generates all texts. Blocks.
    pub(crate) fn run(self) -> anyhow::Result<GenerateReport> {
        let prompt = self.encoder.prepare(&self.prompt);
        let encoded = self.encoder.encode_prompt(&self.prompt).map_err(|fault| {
            anyhow::anyhow!("{}; give another text with `--prompt`", fault.detail)
        })?;
        check_rule(&self.rule)?;
        let generator = TextGenerator::of_run(&self.chosen, &self.context)?;
        let decoder = self.encoder.decoder()?;
        let special = SpecialIds {
            end: self.encoder.end(),
            never: self.encoder.special(),
        };
        let mut report = GenerateReport {
            run: self.chosen.used().clone(),
            checkpoint: generator.checkpoint().to_owned(),
            prompt_tokens: encoded.ids.len() as u64,
            context: generator.context() as u64,
            rule: self.rule,
            texts: Vec::new(),
            warnings: self.warnings(&prompt, encoded.unknown),
            prompt,
        };
        report.warnings.extend_from_slice(generator.warnings());
        let is_closed = Cell::new(false);
        let put = |piece: &str| -> anyhow::Result<bool> {
            let is_written = !self.writes || write(piece)?;
            is_closed.set(is_closed.get() || !is_written);
            Ok(is_written)
        };
        for number in 0..self.texts {
            let begin = [if number > 0 { BETWEEN } else { "" }, &report.prompt].concat();
            let mut goes_on = put(&begin)?;
            let mut stream = decoder.begin(&encoded.ids);
            let mut text = String::new();
            let mut failure = None;
            let mut add = |piece: Result<String, String>| -> anyhow::Result<bool> {
                let piece = piece.map_err(|reason| {
                    anyhow::anyhow!(
                        "the tokens cannot be decoded: {reason}; check the run's tokenizer"
                    )
                })?;
                text.push_str(&piece);
                put(&piece)
            };
            let stopped = || self.stop.flag.load(Ordering::Relaxed);
            let found = generator.generate(
                &encoded.ids,
                u64::from(number),
                &self.rule,
                &special,
                &mut |id| match add(stream.push(id)) {
                    Ok(written) => written && !stopped(),
                    Err(error) => {
                        failure = Some(error);
                        false
                    }
                },
            )?;
            if let Some(failure) = failure {
                return Err(failure);
            }
            goes_on = add(stream.finish())? && goes_on && found.end != GeneratedEnd::Stopped;
            let warnings = window_warnings(&report, number, &found);
            report.warnings.extend(warnings);
            report.texts.push(GeneratedText {
                text,
                tokens: found.ids.len() as u64,
                end: found.end,
            });
            if !goes_on {
                break;
            }
        }
        put("\n")?;
        if is_closed.get() {
            let message = "standard output was closed before all texts were written; those that follow were not generated";
            report.warnings.push(Warning::new("output_closed", message));
        }
        Ok(report)
    }

    fn warnings(&self, prepared: &str, unknown: u64) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if prepared != self.prompt {
            let message = "the prompt was changed as the texts of the dataset were (normalized, or personal data replaced): \
                           the report has it as the model reads it";
            warnings.push(Warning::new("prompt_prepared", message).with_key("dataset.text"));
        }
        if unknown > 0 {
            let message = format!(
                "the model does not know {} of the prompt: its training texts do not have these characters",
                counted(unknown, "token")
            );
            warnings.push(Warning::new("prompt_unknown", message));
        }
        warnings
    }
}

/// Warnings of a text that the model did not read as a whole.
fn window_warnings(report: &GenerateReport, number: u32, found: &Continuation) -> Vec<Warning> {
    let (context, prompt) = (report.context, report.prompt_tokens);
    let warning =
        |code: &str, message: String| Warning::new(code, message).with_key("train.model.context");
    let mut warnings = Vec::new();
    if found.unread > 0 && number == 0 {
        let message = format!(
            "the model did not read the first {} of the prompt's {prompt} tokens: it reads at most {context}",
            found.unread
        );
        warnings.push(warning("prompt_cut", message));
    }
    if found.shifts > 0 {
        let message = format!(
            "text {number} grew beyond the {context} tokens that the model reads, {}; each time it was continued from its \
             last {} tokens",
            counted(found.shifts, "time"),
            context.div_ceil(2)
        );
        warnings.push(warning("context_exceeded", message));
    }
    warnings
}

/// Writes a piece of a text to standard output at once. Returns false where its reader has closed it.
fn write(piece: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    // A file gets the text as it is, a terminal nothing that controls it.
    let piece = match out.is_terminal() {
        true => shown(piece),
        false => piece.to_owned(),
    };
    match out.write_all(piece.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}

impl Text for GenerateReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "generate")?;
        used_run::write(&self.run, out)?;
        line(out, "checkpoint", &self.checkpoint)?;
        let GeneratingRule {
            tokens,
            temperature,
            top_k,
            top_p,
            seed,
        } = self.rule;
        let top_k = top_k.map_or_else(String::new, |k| format!(", top-k {k}"));
        let top_p = top_p.map_or_else(String::new, |p| format!(", top-p {p}"));
        let drawn = format!(
            "temperature {temperature}{top_k}{top_p}, seed {seed}, at most {} a text",
            counted(tokens.into(), "token")
        );
        line(out, "sampling", drawn)?;
        line(out, "prompt", counted(self.prompt_tokens, "token"))?;
        for (number, text) in self.texts.iter().enumerate() {
            let end = match text.end {
                GeneratedEnd::EndOfText => "the model ended the text",
                GeneratedEnd::Length => "it has the requested length (`--tokens`)",
                GeneratedEnd::Stopped => "it was stopped",
            };
            let made = format!("{}; {end}", counted(text.tokens, "token"));
            line(out, &format!("text {number}"), made)?;
        }
        write_warnings(&self.warnings, out)
    }
}
