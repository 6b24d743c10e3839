//! Configs of models that no family mirrors: what is never said of them.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{json as answer, tonnage};

fn config(name: &str, config: &Value) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("architectures").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let _ = std::fs::remove_file(folder.join("model.safetensors"));
    folder
}

/// A header that counts so many parameters.
fn weights(folder: &std::path::Path, parameters: u64) {
    let header = format!(r#"{{"w": {{"dtype": "U8", "shape": [{parameters}], "data_offsets": [0, {parameters}]}}}}"#);
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
}

fn arcee() -> Value {
    json!({"model_type": "arcee", "architectures": ["ArceeForCausalLM"], "hidden_size": 64, "intermediate_size": 256,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 512})
}

fn estimated(folder: &std::path::Path) -> Value {
    answer(&["estimate", folder.to_str().unwrap(), "--gpu", "h100", "-b", "1", "-s", "128", "--json"])
}

#[test]
fn a_generic_answer_fits_only_where_weights_confirm_its_parameters() {
    let folder = config("arcee", &arcee());
    let alone = estimated(&folder);
    assert_eq!((&alone["verdict"], &alone["safe_bytes"]), (&json!("not_known"), &Value::Null));
    assert!(
        alone["caveats"].to_string().contains("put the config into the folder of its safetensors files"),
        "{alone}"
    );
    let parameters = alone["model"]["param_count"].as_u64().unwrap();
    // Embedding and head, two layers, a norm.
    let layer = 4 * 64 * 64 + 2 * 64 * 256 + 2 * 64;
    assert_eq!(parameters, 2 * 1000 * 64 + 2 * layer + 64);
    weights(&folder, parameters);
    assert_eq!(estimated(&folder)["verdict"], "fits");
    weights(&folder, parameters + 1);
    assert_eq!(estimated(&folder)["verdict"], "not_known");
}

#[test]
fn tables_say_no_more_than_the_estimate() {
    let folder = config("arcee_fit", &arcee());
    let path = folder.to_str().unwrap();
    let table = answer(&["fit", path, "--gpus", "h100", "--rows", "1", "-s", "128", "--json"]);
    let cell = &table["rows"][0]["gpus"][0];
    assert_eq!((&cell["verdict"], &cell["safe_bytes"]), (&json!("not_known"), &Value::Null), "{table}");
    assert_eq!(table["largest"][0], Value::Null);
    let screen = tonnage(&["estimate", path, "--gpu", "h100", "-b", "1", "-s", "128"]);
    let text = String::from_utf8(screen.stdout).unwrap();
    assert!(text.contains("not known") && !text.contains("surely enough") && !text.contains("✔"), "{text}");
}

#[test]
fn a_tower_that_is_left_out_never_ends_in_fits() {
    let text = json!({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "vocab_size": 100});
    let vision = json!({"hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304});
    for model_type in ["llava", "idefics3", "mistral3", "internvl", "paligemma"] {
        let model = json!({"model_type": model_type, "text_config": text, "vision_config": vision});
        let said = estimated(&config(model_type, &model));
        assert_eq!((&said["verdict"], &said["safe_bytes"]), (&json!("not_known"), &Value::Null), "{model_type}");
        let caveats = said["caveats"].to_string();
        assert!(caveats.contains("towers of at least 411 M parameters"), "{model_type}: {caveats}");
        let high = said["range_bytes"]["high"].as_u64().unwrap();
        assert!(high >= 411_070_464 * 16, "{model_type}: the range has the tower's states, {high}");
    }
    let preset = answer(&["estimate", "gemma-3-4b-pt", "--gpu", "h200", "-b", "1", "--precision", "bf16", "--json"]);
    assert_eq!(preset["verdict"], "not_known");
    let text_only = answer(&["estimate", "gemma-3-1b-pt", "--gpu", "h200", "-b", "1", "--precision", "bf16", "--json"]);
    assert_eq!(text_only["verdict"], "fits");
}

#[test]
fn what_is_not_known_to_fit_is_nowhere_said_to() {
    let text = json!({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "vocab_size": 100});
    let vision = json!({"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 128});
    let folder = config("unbounded", &json!({"model_type": "llava", "text_config": text, "vision_config": vision}));
    let path = folder.to_str().unwrap();
    let says = |arguments: &[&str]| {
        let output = tonnage(&[&[arguments[0], path, "--precision", "bf16"], &arguments[1..]].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let asked: [(&[&str], i32); 7] = [
        (&["estimate", "--gpu", "h100"], 0),
        (&["estimate"], 0),
        (&["estimate", "--compare", "micro_batch_size=1,2"], 0),
        (&["cost", "--gpu", "h100"], 0),
        (&["fit", "--gpus", "h100,b300", "--rows", "1"], 0),
        (&["plan", "--gpu", "h100"], 1),
        (&["plan", "--gpus", "h100,b300", "--budget", "10", "--max-steps", "10"], 1),
    ];
    for (arguments, code) in asked {
        let (ended, text) = says(arguments);
        assert!(text.contains("not known"), "{arguments:?}: {text}");
        let claims = ["✔ fits  ", "fits from: ", "tight on", "way that fits", " tight ", "usable, tight"];
        let table = text.split("✔ fits   ▲ tight").next().unwrap();
        assert!(!claims.iter().any(|claim| table.contains(claim)), "{arguments:?}: {text}");
        assert_eq!(ended, Some(code), "{arguments:?}: {text}");
    }
    let solved = says(&["fit", "--gpus", "h100", "--solve", "seq_len"]).1;
    assert!(solved.contains("none") && solved.contains("1: ?") && !solved.contains("17179869184"), "{solved}");
    let listed = answer(&["estimate", path, "--json"]);
    assert_eq!(listed["fits_from"], json!([]));
    assert!(listed["fits_from_not_known"].as_array().is_some_and(|ids| ids.contains(&json!("h100"))), "{listed}");
}

#[test]
fn other_heads_are_refused_unless_the_job_says_otherwise() {
    let classifier = json!({"model_type": "llama", "architectures": ["LlamaForQuestionAnswering"], "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 100});
    let folder = config("classifier", &classifier);
    let path = folder.to_str().unwrap();
    let refused = tonnage(&["estimate", path]);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr.contains("the head of `LlamaForQuestionAnswering` is not simulated"), "{stderr}");
    assert!(stderr.contains("tonnage rehearse"), "{stderr}");
    let classes =
        answer(&["estimate", path, "--set", r#"model.architectures=["LlamaForSequenceClassification"]"#, "--json"]);
    let task = classes["job"].as_array().and_then(|keys| keys.iter().find(|one| one["key"] == "task"));
    assert_eq!(task.map(|task| &task["value"]), Some(&json!("sequence_classification")));
    let said = tonnage(&["estimate", path, "--set", r#"model.architectures=["LlamaForCausalLM"]"#]);
    assert_eq!(said.status.code(), Some(0), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn ranks_that_split_a_published_model_can_fit() {
    for (parallel, world_size) in [("tensor", "8"), ("pipeline", "4")] {
        let arguments = [
            "estimate",
            "llama-3.1-8b",
            "--parallel",
            parallel,
            "--world-size",
            world_size,
            "--precision",
            "bf16",
            "-b",
            "1",
        ];
        let said = answer(&[arguments.as_slice(), &["--gpu", "h100", "--json"]].concat());
        assert_eq!(said["verdict"], "fits", "{parallel}");
        assert!(!said["caveats"].to_string().contains("parameter_count"), "{parallel}");
        let (low, high) = (said["range_bytes"]["low"].as_u64().unwrap(), said["range_bytes"]["high"].as_u64().unwrap());
        assert!(low > 0 && high < 2 * low, "{parallel}: {low} to {high}");
    }
}
