//! Every sample of a failure is read by its own class alone, its numbers included; what is no failure is not read.

use std::fs;
use std::path::{Path, PathBuf};

use tonnage_core::failure::Class;
use tonnage_core::units::Bytes;
use tonnage_doctor::{Figure, Scan, Scanner, diagnose};

/// A file of `testdata/failures`: a header of `key: value`, a line `---`, and what the software printed.
struct Sample {
    name: String,
    class: String,
    figures: Vec<(String, String)>,
    text: String,
}

fn root(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

fn samples() -> Vec<Sample> {
    let sample = |path: &PathBuf| {
        let file = fs::read_to_string(path).unwrap();
        let (header, text) = file.split_once("---\n").unwrap_or_else(|| panic!("{}: no header", path.display()));
        let value = |key: &str| {
            let line = header.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            line.unwrap_or_default().to_owned()
        };
        assert!(!value("source").is_empty(), "{}: whose text is it?", path.display());
        let figures = value("figures");
        let figures = figures.split(", ").filter_map(|figure| figure.split_once('='));
        Sample {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            class: value("class"),
            figures: figures.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            text: text.to_owned(),
        }
    };
    files(&root("testdata/failures"), "txt").iter().map(sample).collect()
}

fn scan(bytes: &[u8]) -> Scan {
    scan_pieces(std::iter::once(bytes))
}

fn scan_pieces<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Scan {
    let mut scanner = Scanner::new();
    pieces.for_each(|piece| scanner.feed(piece));
    scanner.finish()
}

fn classes(scan: &Scan) -> Vec<&'static str> {
    let mut classes: Vec<&str> = scan.findings.iter().map(|finding| finding.cause.class().name()).collect();
    classes.dedup();
    classes
}

fn shown(figure: &Figure) -> String {
    match figure {
        Figure::Bytes(bytes) => Bytes(*bytes).to_string(),
        Figure::Number(number) => number.to_string(),
        Figure::Text(text) => text.clone(),
    }
}

/// The sample as it stands among other lines.
fn in_a_log(text: &str) -> String {
    format!("{{'loss': 2.31, 'epoch': 0.1}}\n{text}\n  0%|          | 0/10 [00:00<?, ?it/s]\n")
}

#[test]
fn every_sample_is_read_by_its_own_class_alone() {
    let samples = samples();
    assert!(samples.len() >= 180, "{}", samples.len());
    for sample in &samples {
        for text in [sample.text.clone(), in_a_log(&sample.text)] {
            let scan = scan(text.as_bytes());
            assert_eq!(classes(&scan), [sample.class.as_str()], "{}: {:#?}", sample.name, scan.findings);
        }
    }
}

#[test]
fn numbers_are_the_messages() {
    for sample in samples() {
        let scan = scan(sample.text.as_bytes());
        let found: Vec<_> = scan.findings.iter().flat_map(|finding| finding.cause.figures()).collect();
        for (name, value) in &sample.figures {
            let same = |(other, figure): &&(&str, Figure)| other == name && shown(figure) == *value;
            assert!(found.iter().any(|figure| same(&figure)), "{}: {name}={value} is not in {found:?}", sample.name);
        }
    }
}

#[test]
fn every_class_and_every_signature_has_a_sample() {
    let samples = samples();
    for (_, name, _) in tonnage_core::failure::CLASSES {
        assert!(samples.iter().any(|sample| sample.class == *name), "{name}");
    }
    let read: Vec<&str> =
        samples.iter().flat_map(|sample| scan(sample.text.as_bytes()).findings).map(|found| found.signature).collect();
    for signature in tonnage_doctor::SIGNATURES {
        let name = signature.name;
        assert!(read.contains(&name), "{name}");
    }
}

#[test]
fn launchers_and_terminals_do_not_hide_a_failure() {
    for sample in samples() {
        // A shell's report has no rank: the shell is not a rank.
        if sample.name.starts_with("killed-shell") {
            continue;
        }
        let lines = |change: &dyn Fn(&str) -> String| sample.text.lines().map(change).collect::<String>();
        let forms = [
            lines(&|line| format!("[default3]:{line}\n")),
            lines(&|line| format!("[rank3]: {line}\r\n")),
            lines(&|line| format!("3: {line}\n")),
            lines(&|line| format!("(EngineCore_DP0 pid=12) {line}\n")),
            lines(&|line| format!("\x1b[31m{}\x1b[0m\n", line.replace(' ', "\x1b[1m \x1b[22m"))),
        ];
        for (form, text) in forms.iter().enumerate() {
            let scan = scan(text.as_bytes());
            assert_eq!(classes(&scan), [sample.class.as_str()], "{} in form {form}: {text}", sample.name);
            let ranked = form < 3 && !sample.text.contains("rank");
            assert!(!ranked || scan.findings.iter().all(|found| found.rank == Some(3) || sample.text.contains("Rank")));
        }
    }
}

#[test]
fn a_wrapped_message_keeps_its_numbers() {
    let torch = samples().into_iter().filter(|sample| sample.name.starts_with("torch-") && sample.figures.len() > 1);
    for sample in torch {
        for width in [40, 72, 80, 100, 132] {
            let characters: Vec<char> = sample.text.trim_end().chars().collect();
            let text: String = characters.chunks(width).map(|line| line.iter().collect::<String>() + "\n").collect();
            let wrapped = scan(text.as_bytes());
            let whole = scan(sample.text.as_bytes());
            let causes = |scan: &Scan| scan.findings.iter().map(|found| found.cause.clone()).collect::<Vec<_>>();
            if width >= 72 {
                assert_eq!(causes(&wrapped), causes(&whole), "{} at {width}:\n{text}", sample.name);
            }
        }
    }
}

#[test]
fn interleaved_ranks_are_kept_apart() {
    let line = |rank: u32, text: &str| format!("[rank{rank}]: {text}\n");
    let block = |rank: u32| {
        [
            line(rank, "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:275, unhandled cuda error"),
            line(rank, "ncclUnhandledCudaError: Call to CUDA function failed."),
            line(rank, "Last error:"),
            line(
                rank,
                &format!("Cuda failure {}", if rank == 1 { "2 'out of memory'" } else { "1 'invalid argument'" }),
            ),
        ]
    };
    let (first, second) = (block(0), block(1));
    let text: String = first.iter().zip(&second).map(|(a, b)| format!("{a}{b}")).collect();
    let scan = scan(text.as_bytes());
    let of = |rank| scan.findings.iter().find(|found| found.rank == Some(rank)).map(|found| found.cause.class());
    assert_eq!((of(0), of(1)), (Some(Class::NcclError), Some(Class::OutsideAllocator)), "{:#?}", scan.findings);
}

#[test]
fn ordinary_logs_and_our_documents_raise_no_alarm() {
    let mut quiet = files(&root("testdata/ordinary"), "txt");
    assert!(quiet.len() >= 15);
    quiet.extend(files(&root("docs"), "md"));
    quiet.extend(files(&root(""), "md"));
    quiet.extend(files(&root("crates/cli/tests/expected"), "txt"));
    for path in quiet {
        let text = fs::read_to_string(&path).unwrap();
        let mut scan = scan(text.as_bytes());
        // A command that was refused ends with an error in words of its own.
        if !text.contains("\nexit 0\n") && path.starts_with(root("crates/cli")) {
            scan.findings.retain(|finding| finding.signature != "last_words");
        }
        assert!(scan.findings.is_empty(), "{}: {:#?}", path.display(), scan.findings);
    }
}

#[test]
fn repetitions_are_counted_and_memory_stays() {
    let one = "RuntimeError: CUDA error: out of memory\n";
    let scan = scan(one.repeat(10_000).as_bytes());
    assert_eq!(scan.lines, 10_000);
    assert_eq!(scan.findings.iter().map(|found| found.count).sum::<u64>(), 10_000);
    assert!(scan.findings.len() <= 4);
    assert_eq!(scan.findings.iter().map(|found| found.last_line).max(), Some(10_000));
}

#[test]
fn a_line_without_an_end_is_read_in_pieces() {
    let message = "RuntimeError: CUDA error: out of memory";
    for gap in [0, 1000, 65_000, 65_530, 131_040, 200_000] {
        let text = format!("{}{message}", ".".repeat(gap) + ": ");
        let whole = scan(text.as_bytes());
        assert_eq!(classes(&whole), ["gpu_memory"], "{gap}");
        assert_eq!(whole.findings.len(), 1, "{gap}");
        for size in [1, 7, 4096, 65_537] {
            if size > 1 || gap < 70_000 {
                assert_eq!(scan_pieces(text.as_bytes().chunks(size)), whole, "{gap} in pieces of {size}");
            }
        }
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;
    use tonnage_core::printable::printable;
    use tonnage_doctor::{Context, Setting, Source, advise};

    /// Bytes that look like logs: pieces of samples, terminal codes, line ends, noise.
    fn log() -> impl Strategy<Value = Vec<u8>> {
        let texts: Vec<String> = samples().into_iter().map(|sample| sample.text).collect();
        let piece = prop_oneof![
            4 => (proptest::sample::select(texts), 0.0..1.0_f64, 0.0..1.0_f64).prop_map(|(text, a, b)| {
                let bytes = text.as_bytes();
                let at = |share: f64| (share * bytes.len() as f64) as usize;
                bytes[at(a.min(b)) / 2..at(0.5 + a.max(b) / 2.0)].to_vec()
            }),
            2 => proptest::sample::select(vec!["\n", "\r", "\r\n", "\x1b[31m", "\x1b", "[rank1]: ", "\u{9b}", " "])
                .prop_map(|text| text.as_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..40),
        ];
        proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn any_cut_gives_the_same_findings(log in log(), cuts in proptest::collection::vec(0.0..1.0_f64, 0..8)) {
            let mut places: Vec<usize> = cuts.iter().map(|cut| (cut * log.len() as f64) as usize).collect();
            places.extend([0, log.len()]);
            places.sort_unstable();
            let pieces = places.windows(2).map(|pair| &log[pair[0]..pair[1]]);
            let whole = scan(&log);
            prop_assert_eq!(scan_pieces(pieces), whole.clone());
            prop_assert_eq!(scan_pieces(log.chunks(1)), whole);
        }

        #[test]
        fn anything_is_diagnosed_and_can_be_printed(log in log(), more in log()) {
            let sources = [
                Source { name: "a".to_owned(), rank: Some(0), attempt: None, scan: scan(&log) },
                Source { name: "b".to_owned(), rank: Some(1), attempt: Some(2), scan: scan(&more) },
            ];
            let diagnosis = diagnose(&sources);
            let shown = diagnosis.others.iter().chain(&diagnosis.echoes).chain(&diagnosis.root);
            for found in shown {
                prop_assert!(found.finding.line <= found.source.scan.lines);
                prop_assert!(!printable(&found.finding.text).chars().any(char::is_control));
                let setting = Setting::default();
                let context = Context { setting: &setting, phase: None };
                let is_advised = !advise(&found.finding.cause, &context).is_empty();
                prop_assert!(is_advised);
            }
        }
    }
}
