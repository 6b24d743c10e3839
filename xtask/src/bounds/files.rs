//! The files: for each reader the largest that it takes and the most costly of its kind, made from the limits themselves.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use tonnage_core::limit;

use super::Row;

const REPLAY: &[&str] = &["trace", "replay", "{}"];
const ESTIMATE: &[&str] = &["estimate", "{}", "--gpu", "h100"];
const DOCTOR: &[&str] = &["doctor", "{}"];
const WATCH: &[&str] = &["watch", "--replay", "{}", "--once"];
const BESIDE: &[&str] = &["estimate", "{folder}/config.json"];
const GPU: &[&str] = &["estimate", "gpt2", "--gpu", "{}"];
const FROM: &[&str] = &["estimate", "gpt2", "--from", "axolotl", "{}", "--gpu", "h100"];
const SUITE: &[&str] = &["cost", "--suite", "{}", "--gpu", "h100"];

pub(super) const ROWS: &[Row] = &[
    Row { name: "snapshot: events, junk, one long text", make: |at| made(at, "s.pickle", snapshot), command: REPLAY },
    Row { name: "snapshot: the same, .gz", make: |at| packed(at, "s.pickle.gz", snapshot), command: REPLAY },
    Row { name: "snapshot: one event named again and again", make: |at| made(at, "s.pickle", shared), command: REPLAY },
    Row { name: "snapshot: a bomb of zeros, .gz", make: |at| packed(at, "s.pickle.gz", zeros), command: REPLAY },
    Row {
        name: "timeline: allocations of names of their own",
        make: |at| made(at, "t.jsonl", timeline),
        command: REPLAY,
    },
    Row { name: "timeline: the same, .gz", make: |at| packed(at, "t.jsonl.gz", timeline), command: REPLAY },
    Row {
        name: "timeline: beside a job",
        make: |at| made(at, "t.jsonl", timeline),
        command: &["trace", "compare", "gpt2", "{}"],
    },
    Row { name: "timeline: phases", make: |at| made(at, "t.jsonl", phases), command: REPLAY },
    Row { name: "timeline: a header of numbers", make: |at| made(at, "t.jsonl", header), command: REPLAY },
    Row { name: "timeline: a line without an end, .gz", make: |at| packed(at, "t.jsonl.gz", endless), command: REPLAY },
    Row {
        name: "log: a line without an end",
        make: |at| made(at, "a.log", |out| many(out, b"x", 512 << 20)),
        command: DOCTOR,
    },
    Row { name: "log: errors only", make: |at| made(at, "a.log", |out| many(out, OOM, 8 << 20)), command: DOCTOR },
    Row {
        name: "log: tracebacks only",
        make: |at| made(at, "a.log", |out| many(out, RAISED, 8 << 20)),
        command: DOCTOR,
    },
    Row { name: "recording of GPUs: short lines", make: |at| made(at, "g.jsonl", short_lines), command: WATCH },
    Row {
        name: "recording of GPUs: ten hours of 80 processes",
        make: |at| made(at, "g.jsonl", processes),
        command: WATCH,
    },
    Row { name: "recording of GPUs: lines of numbers", make: |at| made(at, "g.jsonl", ramps), command: WATCH },
    Row { name: "safetensors: small tensors", make: |at| weights(at, small_tensors), command: BESIDE },
    Row { name: "safetensors: a shape of ones", make: |at| weights(at, long_shape), command: BESIDE },
    Row { name: "safetensors: metadata", make: |at| weights(at, metadata), command: BESIDE },
    Row { name: "safetensors index: many names", make: index, command: BESIDE },
    Row {
        name: "config: numbers",
        make: |at| made(at, "config.json", |out| json(out, "0,", limit::CONFIG_BYTES)),
        command: ESTIMATE,
    },
    Row {
        name: "config: objects",
        make: |at| made(at, "config.json", |out| json(out, "{\"a\":{}},", limit::CONFIG_BYTES)),
        command: ESTIMATE,
    },
    Row {
        name: "config: larger",
        make: |at| made(at, "config.json", |out| json(out, "0,", 64 << 20)),
        command: ESTIMATE,
    },
    Row {
        name: "job: numbers",
        make: |at| made(at, "job.toml", |out| toml(out, "", limit::JOB_BYTES)),
        command: ESTIMATE,
    },
    Row { name: "job: keys", make: |at| made(at, "job.toml", |out| keys(out, limit::JOB_BYTES)), command: ESTIMATE },
    Row {
        name: "job: tables in tables",
        make: |at| made(at, "job.toml", |out| nested(out, limit::JOB_BYTES)),
        command: ESTIMATE,
    },
    Row { name: "job: larger", make: |at| made(at, "job.toml", |out| toml(out, "", 64 << 20)), command: ESTIMATE },
    Row {
        name: "suite: a list of values",
        make: |at| made(at, "s.toml", |out| toml(out, CONFIGURATION, HAND)),
        command: SUITE,
    },
    Row {
        name: "trainer's config: keys, YAML",
        make: |at| made(at, "c.yaml", |out| yaml_keys(out, HAND)),
        command: FROM,
    },
    Row { name: "suite: keys", make: |at| made(at, "s.toml", |out| keys(out, HAND)), command: SUITE },
    Row { name: "suite: tables in tables", make: |at| made(at, "s.toml", |out| nested(out, HAND)), command: SUITE },
    Row { name: "suite: configurations", make: |at| made(at, "s.toml", configurations), command: SUITE },
    Row { name: "GPU file: numbers", make: |at| made(at, "g.toml", |out| toml(out, "", HAND)), command: GPU },
    Row { name: "GPU file: keys", make: |at| made(at, "g.toml", |out| keys(out, HAND)), command: GPU },
    Row { name: "GPU file: JSON", make: |at| made(at, "g.json", |out| json(out, "0,", HAND)), command: GPU },
    Row {
        name: "estimate for watch: numbers",
        make: |at| made(at, "e.json", |out| json(out, "0,", limit::JSON_BYTES as usize)),
        command: &["watch", "--estimate", "{}", "--once"],
    },
    Row { name: "journal: progress, 256 MiB", make: |at| journal(at, PROGRESS), command: &["status", "a"] },
    Row { name: "journal: lists of what nobody knows", make: |at| journal(at, UNKNOWN), command: &["status", "a"] },
];

const PROGRESS: &[u8] = b"{\"v\":1,\"at_ms\":5,\"event\":\"progress\",\"node\":0,\"step\":7,\"total\":null}\n";
const UNKNOWN: &[u8] =
    b"{\"v\":9,\"event\":\"x\",\"a\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}\n";

const HAND: usize = limit::HAND_WRITTEN_BYTES as usize;
const CONFIGURATION: &str = "[[configuration]]\n";
const OOM: &[u8] =
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
    3.00 GiB of which 200.00 MiB is free.\n";
const RAISED: &[u8] = b"Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\nValueError: no\n";

const CONFIG: &str = r#"{"model_type": "gpt2"}"#;

type Out<'a> = &'a mut dyn Write;
type Fill = fn(Out<'_>) -> std::io::Result<()>;

fn made(folder: &Path, name: &str, fill: Fill) -> Result<PathBuf> {
    let path = folder.join(name);
    let mut out = BufWriter::new(fs::File::create(&path)?);
    fill(&mut out)?;
    out.flush()?;
    Ok(path)
}

fn packed(folder: &Path, name: &str, fill: Fill) -> Result<PathBuf> {
    let path = folder.join(name);
    let mut out = GzEncoder::new(BufWriter::new(fs::File::create(&path)?), Compression::fast());
    fill(&mut out)?;
    out.finish()?.flush()?;
    Ok(path)
}

fn many(out: Out<'_>, text: &[u8], bytes: usize) -> std::io::Result<()> {
    let block = text.repeat((1 << 16) / text.len() + 1);
    (0..bytes / block.len()).try_for_each(|_| out.write_all(&block))
}

/// A text as a pickle has it, and the place of it in the memo.
fn text(out: Out<'_>, text: &str) -> std::io::Result<()> {
    out.write_all(&[&[0x8c, text.len() as u8], text.as_bytes(), b"\x94"].concat())
}

/// `{"device_traces": [[` with the texts that events name in the memo: from 0 on in the order given.
fn trace_begins(out: Out<'_>) -> std::io::Result<()> {
    out.write_all(b"\x80\x04")?;
    for name in ["action", "alloc", "addr", "size", "segment_map"] {
        text(out, name)?;
        out.write_all(b"0")?;
    }
    out.write_all(b"}(\x8c\x0ddevice_traces](](")
}

/// `]], "segments": [], "junk": [...], "more": "..."}`
fn trace_ends(out: Out<'_>, junk: usize, more: usize) -> std::io::Result<()> {
    out.write_all(b"ee\x8c\x08segments]\x8c\x04junk](")?;
    many(out, b"]h\0a", junk * 4)?;
    out.write_all(b"e\x8c\x04moreX")?;
    out.write_all(&(more as u32).to_le_bytes())?;
    many(out, b"x", more)?;
    out.write_all(&vec![b'x'; more % ((1 << 16) + 1)])?;
    out.write_all(b"u.")
}

fn snapshot(out: Out<'_>) -> std::io::Result<()> {
    trace_begins(out)?;
    // Two values and five references each.
    let events = limit::PICKLE_VALUES / 5 - 10;
    for address in 0..events as u32 {
        out.write_all(b"}(h\0h\x01h\x02J")?;
        out.write_all(&(address % (1 << 30)).to_le_bytes())?;
        out.write_all(b"h\x03K\x01u")?;
    }
    trace_ends(out, 0, limit::RECORDING_BYTES as usize - events * 20 - (8 << 20))
}

fn shared(out: Out<'_>) -> std::io::Result<()> {
    trace_begins(out)?;
    out.write_all(b"}\x94(")?;
    for _ in 0..31 {
        out.write_all(b"h\x02K\x01")?;
    }
    out.write_all(b"h\0h\x04u")?;
    many(out, b"h\x05", (limit::PICKLE_VALUES - 1000) * 2)?;
    trace_ends(out, 0, 0)
}

fn zeros(out: Out<'_>) -> std::io::Result<()> {
    out.write_all(b"\x80\x04")?;
    many(out, &[0], 4 << 30)
}

fn timeline(out: Out<'_>) -> std::io::Result<()> {
    out.write_all(b"{}\n[\"p\",\"forward\",1]\n")?;
    for id in 0..limit::RECORDED_EVENTS - 1 {
        writeln!(out, "[\"a\",{id},512,\"op of its own {id:07}\",\"of the very same module\",\"temporary\"]")?;
    }
    Ok(())
}

fn phases(out: Out<'_>) -> std::io::Result<()> {
    out.write_all(b"{}\n")?;
    (0..limit::RECORDED_PHASES).try_for_each(|step| writeln!(out, "[\"p\",\"a phase that has a longer name\",{step}]"))
}

fn header(out: Out<'_>) -> std::io::Result<()> {
    json(out, "0,", limit::LINE_BYTES)
}

fn endless(out: Out<'_>) -> std::io::Result<()> {
    out.write_all(b"{}\n")?;
    many(out, b"x", 1 << 30)
}

fn short_lines(out: Out<'_>) -> std::io::Result<()> {
    out.write_all(b"{\"tonnage_recording\":1,\"started\":1}\n")?;
    (1..limit::GPU_RECORDING_LINES).try_for_each(|t| writeln!(out, "{{\"t\":{t},\"device\":{},\"used\":{t}}}", t % 8))
}

/// What it takes grows with samples times processes, of which so many are played (`GPU_SAMPLES`).
fn processes(out: Out<'_>) -> std::io::Result<()> {
    out.write_all(b"{\"tonnage_recording\":1,\"started\":1}\n")?;
    let row = "{\"pid\":1,\"used\":1},".repeat(10);
    (0..36_000 * 8).try_for_each(|line| {
        let (t, device, rows) = (line / 8, line % 8, row.trim_end_matches(','));
        writeln!(out, "{{\"t\":{t},\"device\":{device},\"total\":9,\"processes\":[{rows}]}}")
    })
}

fn ramps(out: Out<'_>) -> std::io::Result<()> {
    out.write_all(b"{\"tonnage_recording\":1,\"started\":1}\n")?;
    let ramp = "{\"at\":1,\"per_second\":2,\"most\":3}";
    for t in 0..limit::GPU_RECORDING_BYTES as usize / 200 {
        writeln!(
            out,
            "{{\"t\":{t},\"device\":{},\"total\":9,\"used\":{ramp},\"power\":{ramp},\"fan\":{ramp}}}",
            t % 256
        )?;
    }
    Ok(())
}

fn weights(folder: &Path, fill: fn(Out<'_>, usize) -> std::io::Result<usize>) -> Result<PathBuf> {
    fs::write(folder.join("config.json"), CONFIG)?;
    let mut header = Vec::new();
    header.write_all(b"{\"__metadata__\":{}")?;
    let data = fill(&mut header, limit::SAFETENSORS_HEADER_BYTES as usize - 200)?;
    header.write_all(b"}")?;
    let path = folder.join("model.safetensors");
    let mut out = BufWriter::new(fs::File::create(&path)?);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    out.write_all(&vec![0; data])?;
    out.flush()?;
    Ok(path)
}

/// Entries of one byte each; returns how many.
fn small_tensors(out: Out<'_>, bytes: usize) -> std::io::Result<usize> {
    let count = bytes / 70;
    for at in 0..count {
        write!(out, ",\"{at}\":{{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[{at},{}]}}", at + 1)?;
    }
    Ok(count)
}

fn long_shape(out: Out<'_>, bytes: usize) -> std::io::Result<usize> {
    out.write_all(b",\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1")?;
    many(out, b",1", bytes - 100)?;
    out.write_all(b"]}").map(|()| 1)
}

fn metadata(out: Out<'_>, bytes: usize) -> std::io::Result<usize> {
    out.write_all(b",\"__metadata__\":[0")?;
    many(out, b",{}", bytes)?;
    out.write_all(b"]").map(|()| 0)
}

fn index(folder: &Path) -> Result<PathBuf> {
    fs::write(folder.join("config.json"), CONFIG)?;
    made(folder, "model.safetensors.index.json", |out| {
        out.write_all(b"{\"metadata\":{\"total_size\":1},\"weight_map\":{\"a\":\"a\"")?;
        (0..limit::INDEX_BYTES / 20).try_for_each(|at| write!(out, ",\"{at:x}\":\"{at:x}\""))?;
        out.write_all(b"}}")
    })
}

/// An object with a list of `item`, of so many bytes.
/// A run whose journal has one line again and again, in the folder of runs that the binary is told of.
fn journal(folder: &Path, line: &[u8]) -> Result<PathBuf> {
    let run = folder.join("home/runs/a");
    fs::create_dir_all(&run)?;
    fs::write(run.join("run.json"), r#"{"id": "a"}"#)?;
    let path = run.join("events.jsonl");
    let mut out = BufWriter::new(fs::File::create(&path)?);
    many(&mut out, line, 256 << 20)?;
    out.flush()?;
    Ok(path)
}

fn json(out: Out<'_>, item: &str, bytes: usize) -> std::io::Result<()> {
    let list = item.repeat((bytes - 30) / item.len());
    writeln!(out, "{{\"a\":[{}]}}", list.trim_end_matches(','))
}

fn toml(out: Out<'_>, head: &str, bytes: usize) -> std::io::Result<()> {
    writeln!(out, "{head}micro_batch_size = [1{}]", ",1".repeat(bytes / 2 - 40))
}

fn keys(out: Out<'_>, bytes: usize) -> std::io::Result<()> {
    (0..bytes / 10).try_for_each(|at| writeln!(out, "a{at:x}=1"))
}

fn yaml_keys(out: Out<'_>, bytes: usize) -> std::io::Result<()> {
    (0..(bytes / 12).min(99_000)).try_for_each(|at| writeln!(out, "a{at:x}: 1"))
}

fn nested(out: Out<'_>, bytes: usize) -> std::io::Result<()> {
    let deep = "a.".repeat(60) + "a";
    (0..bytes / (deep.len() + 10)).try_for_each(|at| writeln!(out, "[[{deep}.b{at:x}]]"))
}

fn configurations(out: Out<'_>) -> std::io::Result<()> {
    (0..HAND / (CONFIGURATION.len() + 2)).try_for_each(|_| writeln!(out, "{CONFIGURATION}"))
}
