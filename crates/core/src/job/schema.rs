//! The JSON schema of a job file, made from the key table: editors check and complete job files with it.

use crate::job::keys;
use serde_json::{Map, Value, json};

use super::keys::{Default, KEYS, Key};

/// The schema (draft 2020-12) of a job file.
pub fn job_schema() -> Value {
    let mut properties = Map::new();
    for key in KEYS.iter().filter(|key| !key.name.contains('.')) {
        properties.insert(key.name.to_owned(), key_property(key));
    }
    for table in schema_tables() {
        let schema = table_schema(table);
        match properties.get_mut(table) {
            Some(text) => *text = json!({"anyOf": [text.take(), schema]}),
            None => drop(properties.insert(table.to_owned(), schema)),
        }
    }
    if let Some(model) = properties.get_mut(keys::MODEL) {
        *model = json!({"anyOf": [model.take(), model_table()]});
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tonnage job",
        "description": "What to train, on what",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

/// The tables that keys stand in, each once, in the order of the keys.
fn schema_tables() -> Vec<&'static str> {
    let mut tables = Vec::new();
    for (table, _) in KEYS.iter().filter_map(|key| key.name.split_once('.')) {
        if !tables.contains(&table) {
            tables.push(table);
        }
    }
    tables
}

fn key_property(key: &Key) -> Value {
    let mut schema = key.kind.schema();
    schema["description"] = key.doc.into();
    if let Default::Fixed(json, _) = key.default {
        schema["default"] = serde_json::from_str(json).unwrap_or_default();
    }
    schema
}

fn table_schema(table: &str) -> Value {
    let keys = KEYS.iter().filter_map(|key| Some((key.name.strip_prefix(table)?.strip_prefix('.')?, key)));
    let properties: Map<_, _> = keys.map(|(name, key)| (name.to_owned(), key_property(key))).collect();
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

/// Config fields are the families': only those with a meaning here are described.
fn model_table() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "the model to start from: a hub name or a path"},
            "model_type": {"type": "string", "description": "Hugging Face's model_type, where no name is given"},
        },
        "additionalProperties": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_every_key() {
        let schema = job_schema();
        for key in &KEYS {
            let described = match key.name.split_once('.') {
                Some(("allocator", name)) => &schema["properties"]["allocator"]["anyOf"][1]["properties"][name],
                Some((table, name)) => &schema["properties"][table]["properties"][name],
                None if ["model", "allocator"].contains(&key.name) => &schema["properties"][key.name]["anyOf"][0],
                None => &schema["properties"][key.name],
            };
            assert_eq!(described["description"], key.doc, "{}", key.name);
        }
        assert_eq!(schema["properties"]["micro_batch_size"]["default"], 8);
        assert_eq!(schema["properties"]["precision"]["enum"][4], "amp-bf16");
    }
}
