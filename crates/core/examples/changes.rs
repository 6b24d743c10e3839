//! A job file with changes on top, and what an error tells: `cargo run -p tonnage-core --example changes`.

use std::error::Error;

use tonnage_core::job::{JobSource, Override};

const JOB: &str = "model = \"my-llama\"\nmicro_batch_size = 4\nseq_len = 256\ngpu = \"h100\"\n";
/// What a program with files would read; the source holds it as text.
const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}"#;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let source = JobSource::from_file("job.toml", JOB).config("my-llama", CONFIG);
    println!("before reading files it names: {:?}", JobSource::from_file("job.toml", JOB).lookups(&[]));
    let longer = source.resolve(&[Override::assignment("seq_len=1024")?])?;
    println!("seq_len = {} ({})", longer.job.seq_len, longer.origin("seq_len").ok_or("seq_len is always decided")?);
    let Err(error) = source.resolve(&[Override::caller("lora.dropout", 2)]) else {
        return Err("a dropout of 2 is refused".into());
    };
    println!("refused: {error} (kind {:?}, key {:?})", error.kind, error.key());
    Ok(())
}
