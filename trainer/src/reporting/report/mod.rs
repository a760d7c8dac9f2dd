//! `report.html`: a run on one page that needs nothing but itself.

pub(crate) mod curves;
mod diagnostics;
mod fit;
mod performance;

use feedline_report::{Chart, ChartSeries, document, escape, link, number, some_steps, table};
use feedline_schemas::{
    checkpoint::WorstSample,
    config::{LossConfig, LossKind, TrainConfig},
    count::counted,
    diagnostics::TargetValue,
    manifest::Split,
    report::{ImagesReport, NormalizedBy},
    run::{LeftOutShards, RunRecord, RunState},
};

use self::curves::Curves;
use super::{
    settings_of::{flat, not_default},
    timestamp::moment,
};
use crate::evaluation::metrics::metric;

/// Way to find a sample that has no place in the landing zone.
const OF_QUERY: &str = "The rows are made by dataset.sql, so no landed row is one of them. To find a sample, list an id in \
                        dataset.passthrough, build and train, and look up its key in the file of feedline eval --split validation \
                        --predictions FILE.";

/// Other pages, as links from the page of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    /// The list of runs.
    pub(crate) index: Option<String>,
    /// The report of the dataset.
    pub(crate) dataset: Option<String>,
}

/// The page of a run: its record and the lines of its metrics.
pub(crate) fn page(record: &RunRecord, lines: &str, links: &Links) -> String {
    let curves = Curves::read(lines);
    let mut body = others(links);
    body += &head(record);
    let verdict = fit::verdict(&curves, record.best.as_ref(), &record.config);
    body += &format!(
        "<p class=\"word\"><strong>From the curves: {}.</strong> {}</p>\n",
        escape(verdict.word),
        escape(&sentence(&verdict.why))
    );
    let test = [&record.test, &record.baseline];
    if let Some(warning) =
        crate::evaluation::baseline::warning(&record.config, record.best.as_ref(), test)
    {
        let key = warning.key.unwrap_or_default();
        body += &format!(
            "<p class=\"word\"><strong>Worse than the baseline.</strong> {} See <code>{}</code>.</p>\n",
            escape(&sentence(&warning.message)),
            escape(&key)
        );
    }
    body += &metrics(record);
    let validation = record.best.as_ref();
    let validation = validation.and_then(|best| best.diagnostics.as_ref());
    body += &diagnostics::section("test", record.diagnostics.as_ref(), &record.classes);
    body += &diagnostics::section("validation", validation, &record.classes);
    body += &charts(&curves, &record.config);
    body += &performance::section(record.performance.as_ref());
    body += &worst(record);
    body += &settings(record, links);
    document(&format!("Run {}", record.name), &body)
}

/// Links to other pages.
fn others(links: &Links) -> String {
    let named = [
        (&links.index, "All runs"),
        (&links.dataset, "Dataset report"),
    ];
    let found = named
        .into_iter()
        .filter_map(|(to, name)| Some(link(to.as_ref()?, name)));
    let found: Vec<String> = found.collect();
    if found.is_empty() {
        return String::new();
    }
    format!("<p class=\"links\">{}</p>\n", found.join(" "))
}

fn head(record: &RunRecord) -> String {
    let (name, state) = (escape(&record.name), record.state.as_str());
    let mut out = format!("<h1>Run {name} <span class=\"state\">{state}</span></h1>\n");
    if let Some(reason) = &record.reason {
        out += &format!(
            "<p><strong>Why it failed:</strong> {}</p>\n",
            escape(&sentence(reason))
        );
    }
    let ended = record
        .ended_ms
        .map_or_else(String::new, |ms| format!(", ended {}", moment(ms)));
    let best = record.best.as_ref().map_or_else(String::new, |best| {
        format!(" The weights of epoch {} were kept.", best.number())
    });
    out += &format!(
        "<p>{} of {}, {}, {}, seed {}.{best}</p>\n\
         <p class=\"quiet\">Started {}{ended}; feedline {}. The trainer waited for data {:.1} % of the time.</p>\n",
        record.step,
        counted(record.steps_planned, "step"),
        counted(record.epochs, "epoch"),
        counted(record.parameters, "parameter"),
        record.config.seed.get(),
        moment(record.started_ms),
        escape(&record.program),
        record.data_wait_share * 100.0
    );
    if record.dropped_steps > 0 {
        out += &format!(
            "<p><strong>{} of {} left out.</strong> The gradient overflowed f16, and no weight moved \
             (<code>train.loss_scale.initial</code>).</p>\n",
            counted(record.dropped_steps, "step"),
            record.step
        );
    }
    if record.quarantined > 0 {
        out += &format!(
            "<p><strong>{} cannot be used.</strong> Others were trained on in their place, and no metric counts them \
             (<code>train.loader.max_bad_fraction</code>).</p>\n",
            counted(record.quarantined, "sample")
        );
    }
    out += &of_left_out_shards(record);
    if let Some(images) = &record.images {
        out += &of_images(images);
    }
    if !record.mixture.is_empty() {
        let rows: Vec<_> = record
            .mixture
            .iter()
            .map(|source| {
                let share = format!("{:.2} %", source.share * 100.0);
                let counts = [source.given.to_string(), source.samples.to_string()];
                [source.dataset.clone(), share]
                    .into_iter()
                    .chain(counts)
                    .collect()
            })
            .collect();
        out += &table(
            "Datasets whose training splits were mixed.",
            &["dataset", "weight", "samples given", "samples it has"],
            1..,
            &rows,
        );
    }
    out
}

/// A sentence for each split that shards are left out of.
fn of_left_out_shards(record: &RunRecord) -> String {
    let of_split = |(split, left_out): (&Split, &LeftOutShards)| {
        let paths = left_out.paths.iter().map(|path| escape(path));
        let paths: Vec<String> = paths.collect();
        let more = match left_out.paths.len() as u64 == left_out.shards {
            true => "",
            false => " and more",
        };
        format!(
            "<p><strong>{} of the {split} split with {} left out.</strong> Their files are missing or have another length than the \
             manifest states: {}{more} (<code>train.loader.bad_shards</code>).</p>\n",
            counted(left_out.shards, "shard"),
            counted(left_out.rows, "row"),
            paths.join(", ")
        )
    };
    record.left_out_shards.iter().map(of_split).collect()
}

/// Sentence on the normalisation and the changes of images.
fn of_images(images: &ImagesReport) -> String {
    let by = match images.normalized_by {
        NormalizedBy::Dataset => "the training split",
        NormalizedBy::Imagenet => "ImageNet",
        NormalizedBy::Init => "the run that the first weights are of",
        NormalizedBy::Given => "the configuration",
    };
    let changes = match (images.augmented, images.mixed) {
        (false, false) => "",
        (true, false) => " Those of training were augmented, and the training loss is of these.",
        (_, true) => {
            " Those of training were mixed in pairs, and the training loss is of mixed targets: it is not comparable with the \
             validation loss."
        }
    };
    format!(
        "<p class=\"quiet\">Images were normalised by mean {:.4?} and deviation {:.4?} of {by} \
         (<code>train.images.normalize</code>).{changes}</p>\n",
        images.mean, images.deviation
    )
}

/// Meaning of the metrics of a quantile; empty for another loss.
fn of_quantile(loss: &LossConfig) -> String {
    match (loss.r#type, loss.quantile) {
        (Some(LossKind::Quantile), Some(quantile)) => format!(
            " pinball is the loss of the quantile {quantile}, and coverage the fraction of the targets up to the prediction; their \
             baseline is, for each row, the best constant of the other rows of the split."
        ),
        _ => String::new(),
    }
}

/// The test split beside its baseline and the validation split of the kept weights.
fn metrics(record: &RunRecord) -> String {
    let validation = record.best.as_ref().map(|best| &best.metrics);
    let names: Vec<&String> = match validation {
        Some(metrics) if record.test.is_empty() => metrics.keys().collect(),
        _ => record.test.keys().collect(),
    };
    let mut out = "<h2>Metrics</h2>\n".to_owned();
    if names.is_empty() {
        return out + "<p class=\"quiet\">No epoch was finished.</p>\n";
    }
    let cell = |value: Option<&f64>| value.map_or_else(|| "-".to_owned(), |v| metric(*v));
    let rows: Vec<_> = names
        .into_iter()
        .map(|name| {
            let validation = validation.and_then(|metrics| metrics.get(name));
            let (test, baseline) = (record.test.get(name), record.baseline.get(name));
            let name = match (name.as_str(), &record.classes[..]) {
                ("f1", [_, positive]) => format!("f1 of {positive}"),
                _ => name.clone(),
            };
            vec![name, cell(test), cell(baseline), cell(validation)]
        })
        .collect();
    let units = match (&record.classes[..], &record.targets[..]) {
        ([], []) => ", in the target's units",
        ([], _) => {
            ", by target in its units; rmse and mae without a target are over the targets as stored, r2 is the mean"
        }
        _ => "",
    };
    let of_test = match (record.test.is_empty(), record.state) {
        (false, _) => "The baseline looks at no feature.",
        (true, RunState::Finished) => "The test split has no metrics.",
        (true, _) => "The test split is read once, at the end.",
    };
    let mut caption = format!("Of the kept weights{units}. {of_test}");
    caption += &of_quantile(&record.config.loss);
    out += &table(
        &caption,
        &["metric", "test", "baseline (test)", "validation"],
        1..,
        &rows,
    );
    out
}

fn charts(curves: &Curves, config: &TrainConfig) -> String {
    let mut lines = vec![
        ChartSeries::new("training, per step", curves.of_steps(|p| p.loss)),
        ChartSeries::new(
            fit::training_label(config),
            curves.of_epochs(|p| p.train_loss),
        ),
        ChartSeries::new(
            "validation, per epoch",
            curves.of_epochs(|p| p.validation_loss),
        ),
    ];
    let unsmoothed = curves.unsmoothed();
    if !unsmoothed.is_empty() {
        lines.push(ChartSeries::new("training, without smoothing", unsmoothed));
    }
    let mut losses = Chart::of_steps("Loss", "mean loss", lines);
    if let Some(best) = curves.best() {
        let why = format!(
            "best: {} in epoch {}",
            number(best.validation_loss),
            best.epoch + 1
        );
        losses.mark = Some((
            (crate::float_casts::exact(best.step), best.validation_loss),
            why,
        ));
    }
    let one = |title, y, value| {
        let line = ChartSeries::new(y, curves.of_steps(value));
        Chart::of_steps(title, y, vec![line]).figure()
    };
    let mut out = "<h2>Curves</h2>\n<div class=\"charts\">\n".to_owned();
    out += &losses.figure();
    out += &one("Learning rate", "learning rate", |p| p.learning_rate);
    out += &one("Norm of the gradient", "norm before clipping", |p| {
        p.gradient_norm
    });
    out += &one("Throughput", "samples per second", |p| p.samples_per_s);
    out += &one("Waiting for data", "% of the time", |p| {
        p.data_wait_share * 100.0
    });
    let times = "times the step of the others";
    out += &some_steps(
        "Slowest rank",
        times,
        curves.of_some_steps(|p| p.slowest_ratio),
    );
    out += &performance::charts(curves);
    out + "</div>\n"
}

fn worst(record: &RunRecord) -> String {
    let Some(best) = record.best.as_ref().filter(|best| !best.worst.is_empty()) else {
        return String::new();
    };
    let value = |value: &Option<TargetValue>| match value {
        Some(TargetValue::Number(number)) => metric(*number),
        Some(TargetValue::Class(name)) => name.clone(),
        Some(TargetValue::Numbers(numbers)) => {
            let numbers: Vec<String> = numbers.iter().map(|number| metric(*number)).collect();
            numbers.join("; ")
        }
        None => "-".to_owned(),
    };
    let has_places = best.worst.iter().any(|sample| sample.row.is_some());
    let row = |sample: &WorstSample| {
        let mut cells = vec![
            sample.key.clone(),
            value(&sample.target),
            value(&sample.prediction),
            number(sample.loss),
        ];
        if has_places {
            let count =
                |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |n| n.to_string());
            let sequence = sample.sequence.map(|sequence| sequence.get());
            cells.extend([sample.source, sequence, sample.row].map(count));
        }
        cells
    };
    let rows: Vec<_> = best.worst.iter().map(row).collect();
    let place = match has_places {
        true => "Source, batch and row say where a sample landed.",
        false => OF_QUERY,
    };
    let caption = format!(
        "Validation samples with the largest losses under the kept weights: look here for bad records. {place}"
    );
    let places: &[&str] = match has_places {
        true => &["source", "batch", "row"],
        false => &[],
    };
    let head = [&["key", "target", "prediction", "loss"][..], places].concat();
    format!(
        "<h2>Worst samples</h2>\n{}",
        table(&caption, &head, 1.., &rows)
    )
}

fn settings(record: &RunRecord, links: &Links) -> String {
    let report = links.dataset.as_ref();
    let report = report.map_or_else(String::new, |to| format!(" {}", link(to, "Report")));
    let mut out = format!(
        "<h2>Dataset</h2>\n<p><code>{}</code></p>\n<p>Fingerprint <code>{}</code>.{report}</p>\n{}<h2>Configuration</h2>\n",
        escape(&record.dataset),
        record.fingerprint,
        beginning(record)
    );
    let config = flat(&record.config);
    out += &pairs(
        "Keys that differ from the defaults",
        not_default(record).iter(),
    );
    out += "<details><summary>All keys, resolved</summary>\n";
    out += &pairs("Resolved configuration", config.iter());
    out + "</details>\n"
}

/// Rows of the splits, and the run that this one continues.
fn beginning(record: &RunRecord) -> String {
    let rows = record.splits.iter();
    let rows: Vec<String> = rows
        .map(|(split, content)| format!("{split} {}", content.rows))
        .collect();
    let mut out = match rows.is_empty() {
        true => String::new(),
        false => format!("<p>Rows: {}</p>\n", rows.join(", ")),
    };
    if let Some(from) = &record.continued_from {
        let before: Vec<String> = from
            .before
            .iter()
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        let result = match from.equals_one_run {
            true => "the result is that of one run of this length".to_owned(),
            false => {
                let why = from.reason.iter();
                let why: String = why.map(|reason| format!(": {}", escape(reason))).collect();
                format!("the result is not that of one run with this configuration{why}")
            }
        };
        out += &format!(
            "<p>Continues run <code>{}</code> after step {}, epoch {}, where {}; {result}.</p>\n",
            escape(&from.run),
            from.step,
            from.epoch,
            escape(&before.join(", "))
        );
    }
    out
}

fn pairs<'a>(caption: &str, pairs: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let mut out = format!(
        "<div class=\"scroll\"><table><caption>{}</caption>\n<tbody>\n",
        escape(caption)
    );
    for (key, value) in pairs {
        out += &format!(
            "<tr><th scope=\"row\"><code>{}</code></th><td class=\"code\">{}</td></tr>\n",
            escape(key),
            escape(value)
        );
    }
    out + "</tbody></table></div>\n"
}

/// With a capital and a full stop.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars
        .next()
        .map(|c| c.to_uppercase().to_string())
        .unwrap_or_default();
    let text = format!("{first}{}", chars.as_str());
    if text.ends_with('.') {
        text
    } else {
        text + "."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;

    fn lines() -> String {
        let step = |s: u32| {
            format!(
                "{{\"kind\":\"step\",\"step\":{s},\"epoch\":0,\"loss\":{},\"gradient_norm\":1.5,\"learning_rate\":0.1,\
                 \"samples_per_s\":900.0,\"data_wait_share\":0.01}}\n",
                1.0 / f64::from(s)
            )
        };
        (1..50).map(step).collect()
    }

    #[test]
    fn ranks_that_were_compared_have_a_curve() {
        let record = record("0123456789abcdef");
        assert!(!page(&record, &lines(), &Links::default()).contains("Slowest rank"));
        let compared = lines().replace("\"loss\"", "\"slowest_ratio\":1.5,\"loss\"");
        let page = page(&record, &compared, &Links::default());
        assert!(page.contains("Slowest rank") && page.contains("times the step of the others"));
    }

    #[test]
    fn the_page_is_whole_and_needs_nothing_else() {
        let mut record = record("0123456789abcdef");
        record.dataset = "s3://bucket/<odd> & \"quoted\"".into();
        let page = page(&record, &lines(), &Links::default());
        for part in [
            "Loss",
            "Learning rate",
            "Norm of the gradient",
            "Throughput",
            "Waiting for data",
            "Worst samples",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(page.contains("s3://bucket/&lt;odd&gt; &amp; &quot;quoted&quot;"));
        assert!(page.contains("The weights of epoch 1 were kept."));
        assert!(page.contains("too early to say"));
        for foreign in ["<script", "http://", "https://", "url(", "NaN"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(
            page.matches("<figure>").count(),
            page.matches("</figure>").count()
        );
    }

    #[test]
    fn the_page_links_to_other_pages_and_its_own_sections() {
        let mut record = record("a");
        let best = record.best.as_mut().unwrap();
        best.worst[0].target = Some(TargetValue::Number(7.25));
        best.worst[0].prediction = Some(TargetValue::Class("<i>".into()));
        assert!(!page(&record, "", &Links::default()).contains("href=\"."));
        let links = Links {
            index: Some("../index.html".into()),
            dataset: Some("../../dataset/report-1.html".into()),
        };
        let page = page(&record, "", &links);
        for part in [
            "<a href=\"../index.html\">All runs</a>",
            "<a href=\"../../dataset/report-1.html\">Dataset report</a>",
            "<a href=\"#s3\">Worst samples</a>",
            "<h2 id=\"s3\">Worst samples</h2>",
            "<td class=\"number\">7.2500</td><td class=\"number\">&lt;i&gt;</td>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let sections = page.matches("<h2 id=").count();
        assert_eq!(page.matches("href=\"#s").count(), sections);
    }

    #[test]
    fn worst_samples_of_a_query_are_shown_without_a_landed_row() {
        let mut record = record("a");
        let landed = page(&record, "", &Links::default());
        assert!(landed.contains("Source, batch and row say where a sample landed."));
        assert!(landed.contains(">batch</th>"));
        let sample = &mut record.best.as_mut().unwrap().worst[0];
        (sample.source, sample.sequence, sample.row) = (None, None, None);
        let made = page(&record, "", &Links::default());
        assert!(made.contains("list an id in dataset.passthrough"), "{made}");
        for part in ["say where a sample landed", ">batch</th>", ">row</th>"] {
            assert!(!made.contains(part), "{part}: {made}");
        }
    }

    #[test]
    fn samples_that_cannot_be_used_are_counted_on_the_page() {
        let mut record = record("a");
        assert!(!page(&record, "", &Links::default()).contains("cannot be used"));
        record.quarantined = 2;
        let page = page(&record, "", &Links::default());
        assert!(page.contains("2 samples cannot be used."), "{page}");
    }

    #[test]
    fn shards_that_are_left_out_are_named_on_the_page() {
        let mut record = record("a");
        let left_out = LeftOutShards {
            shards: 21,
            rows: 70,
            paths: vec!["shards/<a>".to_owned()],
        };
        record.left_out_shards = [(Split::Train, left_out)].into();
        let page = page(&record, "", &Links::default());
        for part in [
            "21 shards of the train split with 70 rows left out.",
            "states: shards/&lt;a&gt; and more (",
        ] {
            assert!(page.contains(part), "{page}");
        }
    }

    #[test]
    fn a_finished_run_without_test_metrics_says_so() {
        let mut record = record("a");
        record.test.clear();
        let page = page(&record, "", &Links::default());
        assert!(page.contains("The test split has no metrics."), "{page}");
    }

    #[test]
    fn steps_that_overflowed_are_counted() {
        let mut record = record("a");
        assert!(!page(&record, "", &Links::default()).contains("left out"));
        record.dropped_steps = 3;
        let page = page(&record, "", &Links::default());
        assert!(page.contains("3 steps of 4 left out."), "{page}");
    }

    #[test]
    fn f1_names_its_class_and_classes_have_no_units() {
        let mut record = record("a");
        record.classes = vec!["good".into(), "<bad>".into()];
        record.test.insert("f1".into(), 0.5);
        let page = page(&record, "", &Links::default());
        assert!(page.contains("f1 of &lt;bad&gt;"), "{page}");
        assert!(!page.contains(&escape("target's units")), "{page}");
    }

    #[test]
    fn metrics_of_a_quantile_are_explained() {
        let mut record = record("a");
        let meaning = "coverage the fraction of the targets up to the prediction";
        assert!(!page(&record, "", &Links::default()).contains(meaning));
        record.config.loss = LossConfig {
            r#type: Some(LossKind::Quantile),
            quantile: Some(0.9),
            ..LossConfig::default()
        };
        let page = page(&record, "", &Links::default());
        assert!(page.contains("the loss of the quantile 0.9"), "{page}");
        assert!(page.contains(meaning), "{page}");
    }

    #[test]
    fn a_run_that_failed_before_its_first_epoch_has_a_page_too() {
        let mut record = record("a");
        (record.best, record.reason) = (None, Some("the disk is full".into()));
        record.test.clear();
        let page = page(&record, "", &Links::default());
        assert!(page.contains("The disk is full."));
        assert!(page.contains("No epoch was finished."));
        assert!(page.contains("Nothing was measured."));
    }

    #[test]
    fn moments_and_metrics_are_read_easily() {
        assert_eq!(moment(1_700_000_000_000), "2023-11-14 22:13 UTC");
        assert_eq!(metric(54_321.98), "54322.0");
        assert_eq!(metric(0.5), "0.5000");
        assert_eq!(metric(520.0), "520");
    }
}
