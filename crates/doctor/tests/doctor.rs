//! Whole logs and folders of logs, composed: the cause, the first rank where one is known, and nothing where a job ended well.

use std::fs;
use std::path::{Path, PathBuf};

use tonnage_core::failure::Class;
use tonnage_doctor::{Context, Diagnosis, End, Scanner, Source, advise, diagnose, place_of};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/doctor")
}

fn source(name: &str, log: &[u8]) -> Source {
    let mut scanner = Scanner::new();
    scanner.feed(log);
    let (rank, attempt) = place_of(name);
    Source { name: name.to_owned(), rank, attempt, scan: scanner.finish() }
}

/// A log, or all logs of a folder, in the order of names.
fn sources(path: &Path) -> Vec<Source> {
    if path.is_file() {
        return vec![source(&path.display().to_string(), &fs::read(path).unwrap())];
    }
    let mut paths: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().flat_map(|path| sources(path)).collect()
}

fn cause(diagnosis: &Diagnosis<'_>) -> &'static str {
    diagnosis.root.map_or("none", |root| root.finding.class().name())
}

fn flags(diagnosis: &Diagnosis<'_>) -> String {
    let context = Context { setting: &diagnosis.setting, phase: diagnosis.phase };
    let all = advise(&diagnosis.root.unwrap().finding.cause, &context);
    all.into_iter().map(|advice| format!("{} {}\n", advice.text, advice.flag.unwrap_or_default())).collect()
}

#[test]
fn every_log_has_its_cause_and_its_first_rank() {
    let answers = fs::read_to_string(root().join("answers.txt")).unwrap();
    let mut listed = 0;
    for line in answers.lines().filter(|line| !line.starts_with('#')) {
        let [name, class, rank] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let sources = sources(&root().join(name));
        let diagnosis = diagnose(&sources);
        assert_eq!((cause(&diagnosis), diagnosis.first_rank), (class, rank.parse().ok()), "{name}");
        listed += 1;
    }
    assert!(listed >= 100, "{listed}");
}

#[test]
fn the_line_that_says_why_is_named() {
    let lines = [
        ("conda_then_module.log", "ModuleNotFoundError: No module named 'torch'"),
        ("julia_after_python.log", "ERROR: LoadError: DomainError with -0.31:"),
        ("make_and_ld.log", "fit.cpp:(.text.startup+0x67): undefined reference"),
        ("mpirun_and_julia.log", "ERROR: LoadError: Some tests did not pass"),
        ("go_test.log", "--- FAIL: TestFit"),
        ("rust_build.log", "error[E0425]: cannot find value"),
        ("stata.log", "file panel_2031.dta not found"),
        ("vasp_box.log", "|     The number of bands is not sufficient"),
    ];
    for (name, start) in lines {
        let sources = sources(&root().join(name));
        let text = &diagnose(&sources).root.unwrap().finding.text;
        assert!(text.starts_with(start), "{name}: {text}");
    }
}

#[test]
fn an_exception_is_found_however_much_is_written_after_it() {
    let log = fs::read_to_string(root().join("key_error.log")).unwrap();
    let after = format!("{log}{}", "DEBUG a b c\n".repeat(5000));
    let sources = [source("a", after.as_bytes()), Source::default()];
    let diagnosis = diagnose(&sources);
    let place = diagnosis.root.unwrap().finding.place().unwrap();
    assert_eq!((cause(&diagnosis), place.file.as_str(), place.line), ("raised", "/home/u/train.py", 61));
}

#[test]
fn what_a_loaders_worker_raised_has_its_own_place() {
    let sources = sources(&root().join("worker_and_pipe.log"));
    let diagnosis = diagnose(&sources);
    let finding = diagnosis.root.unwrap().finding;
    let place = finding.place().unwrap();
    assert_eq!((place.file.as_str(), place.line), ("/home/u/data.py", 19));
    assert_eq!(finding.text, "pack.BadZip: part 3 is cut off");
}

#[test]
fn what_steps_rise_after_was_survived() {
    let steps: String = (0..2000).map(|step| format!("step {step}/3000 loss 2.1\n")).collect();
    let error = fs::read_to_string(root().join("key_error.log")).unwrap();
    let log = format!("RuntimeError: CUDA error: out of memory\n{steps}{error}");
    let sources = [source("a", log.as_bytes())];
    let diagnosis = diagnose(&sources);
    assert_eq!((cause(&diagnosis), diagnosis.survived[0].finding.class()), ("raised", Class::GpuMemory));
    assert_eq!(diagnosis.step.map(|step| (step.step, step.of)), Some((1999, Some(3000))));
}

#[test]
fn what_other_commands_write_after_it_is_theirs() {
    let error = fs::read_to_string(root().join("key_error.log")).unwrap();
    let exit = "srun: error: node3: task 0: Exited with exit code 1\n";
    let plain = |lines| (0..lines).map(|line| format!("row {line:04} of the next program\n")).collect::<String>();
    let of = |log: &str| cause(&diagnose(&[source("a", log.as_bytes())]));
    // A launcher's last words end its command; a script's trailer is short.
    assert_eq!(of(&format!("{error}{exit}{}", plain(120))), "none");
    assert_eq!(of(&format!("{error}{exit}{}", plain(40))), "raised");
    // A program may hold back 8 KiB and write them when it ends.
    assert_eq!(of(&format!("{error}{}", plain(600))), "none");
    assert_eq!(of(&format!("{error}{}", plain(240))), "raised");
    assert_eq!(of(&format!("{error}{}ERROR: no such column\n", plain(600))), "raised");
    // NCCL does without a driver that it warns of.
    let warning =
        "node3:11:12 [0] misc/nvmlwrap.cc:100 NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch\n";
    assert_eq!(of(&format!("{warning}{}", plain(120))), "none");
    assert_eq!(of(&format!("{warning}{}", plain(2))), "driver_mismatch");
}

#[test]
fn a_good_end_or_a_new_start_counts_however_much_follows() {
    let after = "DEBUG a b c\n".repeat(5000);
    let error = fs::read_to_string(root().join("key_error.log")).unwrap();
    let ended = format!("{error}{after}{{'train_runtime': 12.1, 'train_loss': 0.2}}\n{after}");
    assert_eq!(cause(&diagnose(&[source("a", ended.as_bytes())])), "none");
    let disk = "OSError: [Errno 28] No space left on device\n";
    let again = format!("{error}{after}Restarting job from step 10\n{after}{disk}");
    let sources = [source("a", again.as_bytes())];
    let diagnosis = diagnose(&sources);
    assert_eq!((cause(&diagnosis), diagnosis.survived.len()), ("disk_full", 1));
    // What came before the failure is no sign of life after it.
    let before = format!("{{'train_runtime': 12.1, 'train_loss': 0.2}}\n{after}{error}");
    assert_eq!(cause(&diagnose(&[source("a", before.as_bytes())])), "raised");
}

#[test]
fn what_is_raised_again_and_again_is_not_what_ended_it() {
    let skipped = "step: the batch is skipped\nTraceback (most recent call last):\n  File \"a.py\", line 3, in f\n\
        \x20   g()\nValueError: 3 is not 4\n";
    let log = format!("{}\n\n\n\nRuntimeError: CUDA error: out of memory\n", skipped.repeat(100));
    let sources = [source("a", log.as_bytes())];
    let diagnosis = diagnose(&sources);
    assert_eq!((cause(&diagnosis), diagnosis.others.len()), ("gpu_memory", 0));
    // Another one at the end is what ended it.
    let log = format!("{}{}", skipped.repeat(100), fs::read_to_string(root().join("key_error.log")).unwrap());
    let sources = [source("a", log.as_bytes())];
    let diagnosis = diagnose(&sources);
    assert_eq!(cause(&diagnosis), "raised");
}

#[test]
fn what_is_appended_to_a_log_is_of_another_job() {
    let error = fs::read_to_string(root().join("key_error.log")).unwrap();
    let cancelled = "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-02-03T04:05:06 ***\n";
    let more = "reading a row\n".repeat(150);
    assert_eq!(cause(&diagnose(&[source("a", format!("{error}{cancelled}{more}").as_bytes())])), "none");
    assert_eq!(cause(&diagnose(&[source("a", format!("{more}{cancelled}").as_bytes())])), "cancelled");
    let begins =
        "2026-02-03 04:05:06.5: I tensorflow/dso_loader.cc:53] Successfully opened dynamic library libcudart.so.11.0\n";
    assert_eq!(cause(&diagnose(&[source("a", format!("{error}{begins}{more}").as_bytes())])), "none");
    assert_eq!(cause(&diagnose(&[source("a", format!("{begins}{error}{more}").as_bytes())])), "raised");
    let usage = "train.py: error: unrecognized arguments: --x 1\n";
    assert_eq!(cause(&diagnose(&[source("a", format!("{usage}{}", more.repeat(3)).as_bytes())])), "none");
    assert_eq!(cause(&diagnose(&[source("a", usage.as_bytes())])), "usage");
}

#[test]
fn ranks_are_told_by_how_they_ended() {
    let sources = sources(&root().join("torchrun_folder"));
    let ranks = diagnose(&sources).ranks;
    assert_eq!((ranks.with(End::Raised), ranks.with(End::Waited)), (vec![5], vec![0, 1, 2, 3, 4, 6, 7]));
}

#[test]
fn a_log_says_itself_that_it_ended_well() {
    let ended = |log: &str| source("a", log.as_bytes()).scan.ended_well;
    let well = "Training completed. Do not forget to share your model on huggingface.co/models =)\n";
    assert_eq!(ended(&format!("step 9/9 loss 1.8\n{well}saved to out\n")), Some(2));
    assert_eq!(ended(&format!("step 9/9 loss 1.8\n{well}ERROR: the upload got no answer\n")), None);
    assert_eq!(ended("step 9/9 loss 1.8\n"), None);
}

#[test]
fn who_waited_is_no_machine_to_leave_out() {
    let named = sources(&root().join("named_but_waited.log"));
    let diagnosis = diagnose(&named);
    assert_eq!((diagnosis.node, diagnosis.ranks.with(End::Silent)), (None, vec![2]));
    let behind = sources(&root().join("named_and_behind.log"));
    assert_eq!(diagnose(&behind).node.as_deref(), Some("gpu-b07"));
}

#[test]
fn an_exit_status_hides_nothing() {
    let mut sources = sources(&root().join("key_error.log"));
    let mut status = Source::default();
    status.scan.findings.extend(tonnage_doctor::Finding::of_exit_status(1));
    sources.push(status);
    assert_eq!(cause(&diagnose(&sources)), "raised");
}

#[test]
fn advice_fits_what_ran() {
    let of = |name: &str| {
        let sources = sources(&root().join(name));
        flags(&diagnose(&sources))
    };
    assert!(!of("fragmentation_windows.log").contains("expandable_segments:True"));
    assert!(of("no_kernel_image.log").contains("sm_86") || of("no_kernel_image.log").contains("8.6"));
    assert!(of("protobuf.log").contains("protobuf>=3.20,<5"));
    assert!(of("drive.log").contains("drive.mount"));
    assert!(of("missing_module.log").contains("pip install hrm"));
    assert!(!of("own_process.log").contains("ps -o pid"));
    // PyTorch itself found no memory: it is not what has too much.
    assert!(!of("own_process.log").contains("set_per_process_memory_fraction"));
    assert!(of("own_process.log").starts_with("8.02 GiB of this process lie beside PyTorch's allocator"));
    let own = sources(&root().join("own_process.log"));
    let cause = &diagnose(&own).root.unwrap().finding.cause;
    assert_eq!(cause.title(), "this process holds too much GPU memory beside PyTorch's allocator");
}

#[test]
fn advice_is_the_framework_s_that_failed() {
    let of = |name: &str| {
        let sources = sources(&root().join(name));
        flags(&diagnose(&sources))
    };
    for name in ["torchrun_warns_of_threads.log", "tensorflow_beside_the_trainer.log"] {
        assert!(of(name).contains("--per_device_train_batch_size"), "{name}: {}", of(name));
    }
    let advice = of("jax_beside_torch.log");
    assert!(advice.contains("DataLoader(batch_size") && !advice.contains("jax"), "{advice}");
    // What no allocator of PyTorch states is JAX's where it shows.
    let own = "import jaxlib\njaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.\n";
    assert!(flags(&diagnose(&[source("a", own.as_bytes())])).contains("XLA_PYTHON_CLIENT_PREALLOCATE"));
}
