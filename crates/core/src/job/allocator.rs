//! The `allocator` keys of a job, put together as the text that PYTORCH_ALLOC_CONF would have.

use serde_json::Value;

use crate::alloc::AllocatorConfig;

/// The allocator settings that the keys in `set` describe, in the order of the key table.
pub(super) fn allocator_config(set: &[(&str, Value)]) -> Result<AllocatorConfig, String> {
    let settings: Vec<_> = set.iter().map(|(key, value)| setting_text(key, value)).collect();
    AllocatorConfig::parse(&settings.join(",")).map_err(|error| error.to_string())
}

/// `allocator` is a settings text itself; `allocator.max_split_size_mb` and the like are one setting each.
fn setting_text(key: &str, value: &Value) -> String {
    let value = match value {
        Value::Bool(on) => if *on { "True" } else { "False" }.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match key.strip_prefix("allocator.") {
        Some(name) => format!("{name}:{value}"),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_and_texts_mean_the_same() {
        let table = [
            ("allocator.expandable_segments", json!(true)),
            ("allocator.max_split_size_mb", json!(128)),
            ("allocator.roundup_power2_divisions", json!("4")),
        ];
        let text = [("allocator", json!("expandable_segments:True,max_split_size_mb:128,roundup_power2_divisions:4"))];
        assert_eq!(allocator_config(&table), allocator_config(&text));
        assert_eq!(allocator_config(&[]), Ok(AllocatorConfig::default()));
        assert!(allocator_config(&table).unwrap().expandable_segments);
    }

    #[test]
    fn a_table_key_refines_the_text() {
        let set = [
            ("allocator", json!("max_split_size_mb:64,expandable_segments:True")),
            ("allocator.max_split_size_mb", json!(256)),
        ];
        let config = allocator_config(&set).unwrap();
        assert_eq!((config.max_split_size_mb, config.expandable_segments), (Some(256), true));
    }

    #[test]
    fn says_what_is_wrong() {
        let problem = allocator_config(&[("allocator", json!("max_split_size_mb:big"))]).unwrap_err();
        assert_eq!(problem, "`max_split_size_mb`: expected a whole number, found `big`");
    }
}
