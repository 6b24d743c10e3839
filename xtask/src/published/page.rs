//! The page: a summary by class, then every figure.

use std::fmt::Write;

use super::figure::{Class, Compared, Figure, Library, Source};

const INTRODUCTION: &str = include_str!("introduction.md");

/// The whole page.
pub fn published_page(library: &Library, compared: &[Compared]) -> String {
    let mut text = format!("{INTRODUCTION}\n## In short\n\n{}\n\n", in_short(compared));
    text.push_str("| class | figures | as published | within 0.1 % | within 1 % | worst | allowed |\n|---|---|---|---|---|---|---|\n");
    for class in &library.classes {
        text.push_str(&class_summary(class, &of(compared, class)));
    }
    text.push_str("\n## Classes\n\n");
    for class in &library.classes {
        let why = class.why.as_ref().map_or_else(String::new, |why| format!(" Why not nearer: {why}."));
        let _ = writeln!(text, "- **{}**: {}.{why}", class.name, class.what);
    }
    text.push_str("\n## Figures\n\n| figure | what | measured | published | Tonnage, bytes | error | class | source |\n|---|---|---|---|---|---|---|---|\n");
    compared.iter().for_each(|row| text.push_str(&figure_line(row)));
    text.push_str("\n## Sources\n\n");
    for (at, source) in library.sources.iter().enumerate() {
        let _ = writeln!(text, "{}. {}", at + 1, told_source(source));
    }
    text
}

/// The sentence for those who read one: all figures that have a tolerance.
fn in_short(compared: &[Compared]) -> String {
    let tested: Vec<&Compared> = compared.iter().filter(|row| row.class.tolerance_percent.is_some()).collect();
    let within =
        |percent: f64| tested.iter().filter(|row| row.is_equal() || row.error_percent().abs() <= percent).count();
    let listed = compared.len() - tested.len();
    let reach: Vec<&Compared> = compared.iter().filter(|row| row.is_of_reach()).collect();
    let near = reach.iter().filter(|row| row.is_equal() || row.error_percent().abs() <= 1.0).count();
    format!(
        "Of {} figures that are tested, {} are within 0.1 %, {} within 1 % and {} within 5 %. {listed} more are listed with \
         the reason for which they are not.\n\nOf {} figures of QLoRA, GPTQ, FSDP1 and MoE, tested or listed, {near} are within 1 %.",
        tested.len(),
        within(0.1),
        within(1.0),
        within(5.0),
        reach.len(),
    )
}

fn of<'a, 'b>(compared: &'a [Compared<'b>], class: &Class) -> Vec<&'a Compared<'b>> {
    compared.iter().filter(|row| row.class.name == class.name).collect()
}

fn class_summary(class: &Class, rows: &[&Compared]) -> String {
    let within =
        |percent: f64| rows.iter().filter(|row| row.is_equal() || row.error_percent().abs() <= percent).count();
    let equal = rows.iter().filter(|row| row.is_equal()).count();
    let worst = rows.iter().map(|row| row.error_percent()).max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let worst = worst.map_or_else(|| "-".to_owned(), |worst| format!("{worst:+.3} %"));
    let allowed = class.tolerance_percent.map_or_else(|| "listed".to_owned(), |percent| format!("{percent} %"));
    let (figures, near, nearer) = (rows.len(), within(1.0), within(0.1));
    format!("| {} | {figures} | {equal} | {nearer} | {near} | {worst} | {allowed} |\n", class.name)
}

fn figure_line(row: &Compared) -> String {
    let figure = row.figure;
    let mark = if row.is_equal() { " =" } else { "" };
    let job: Vec<&str> = figure.set.iter().map(String::as_str).filter(|set| tells_set(set)).collect();
    format!(
        "| {} | {}: {} {} | {}; {} | {} {} | {} | {:+.4} %{mark} | {} | {} |\n",
        figure.id,
        figure.compared.name(),
        figure.model.trim_start_matches("models/").trim_end_matches(".json"),
        job.join(" "),
        where_and_how(figure),
        figure.instrument,
        figure.published,
        figure.unit,
        row.estimated,
        row.error_percent(),
        figure.class,
        figure.source + 1,
    )
}

/// The GPU, and the versions that the source tells.
fn where_and_how(figure: &Figure) -> String {
    let versions = figure.versions.iter().map(|(library, version)| format!("{library} {version}"));
    [figure.gpu.clone()].into_iter().chain(versions).collect::<Vec<_>>().join(", ")
}

/// Whether a setting tells one row of the table from another.
fn tells_set(set: &str) -> bool {
    ["micro_batch_size=", "seq_len=", "lora.r=", "transformers=", "world_size=", "gpu="]
        .iter()
        .any(|key| set.starts_with(key))
}

fn told_source(source: &Source) -> String {
    let commit = source.commit.as_ref().map_or_else(String::new, |commit| format!(" at {commit}"));
    let file = source.file.as_ref().map_or_else(String::new, |file| format!(", {file}"));
    let by = source.measured_by.as_ref().map_or_else(String::new, |by| format!(" ({by})"));
    format!("{}{commit}{file}{by}", source.address)
}
