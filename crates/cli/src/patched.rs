//! A job file with changes written into it; what else stands there, comments too, stays as it is.

use toml_edit::{DocumentMut, Item, Table, Value, value};
use tonnage_core::job::keys;
use tonnage_core::job::{Key, Kind, Override, tables_of_other_strategies};

use crate::failure::Failure;

/// The text of a job file with `changes`; the last one of a key wins.
///
/// # Errors
/// When the text is no TOML, or has a value where a change needs a table.
pub fn patch_toml(text: &str, changes: &[Override]) -> Result<String, Failure> {
    let mut document: DocumentMut =
        text.parse().map_err(|error| Failure::bad_input(format!("the job file is no TOML: {error}")))?;
    for change in changes {
        if change.key == keys::PARALLEL {
            for table in tables_of_other_strategies(&change.value) {
                document.remove(table);
            }
        }
        set_key(&mut document, change)?;
    }
    Ok(document.to_string())
}

fn set_key(document: &mut DocumentMut, change: &Override) -> Result<(), Failure> {
    let known = Key::find(&change.key);
    let key = known.map_or(change.key.as_str(), |key| key.name);
    let new = written_value(known.map(|key| key.kind), &change.value);
    let Some((table, field)) = key.split_once('.') else {
        put_value(document.as_table_mut(), key, new);
        return Ok(());
    };
    match document.get_mut(table) {
        None => {
            let mut made = Table::new();
            made.insert(field, value(new));
            document.insert(table, Item::Table(made));
        }
        Some(item) if table == keys::MODEL && item.is_str() => {
            let name = item.as_str().unwrap_or_default().to_owned();
            let mut made = Table::new();
            made.insert("name", value(name));
            made.insert(field, value(new));
            // A table must not stand before the plain keys that follow the name.
            document.remove(table);
            document.insert(table, Item::Table(made));
        }
        Some(item) if table == keys::ALLOCATOR && item.is_str() => {
            let settings =
                format!("{},{field}:{}", item.as_str().unwrap_or_default(), capitalised_words(&change.value));
            *item = value(settings);
        }
        Some(item) => {
            let Some(inner) = item.as_table_like_mut() else {
                return Err(Failure::bad_input(format!("`{table}` is no table, so `{key}` cannot be set")));
            };
            inner.insert(field, value(new));
        }
    }
    Ok(())
}

/// Replaces a value and keeps the comment behind it.
fn put_value(table: &mut Table, key: &str, mut new: Value) {
    if let Some(old) = table.get(key).and_then(Item::as_value) {
        *new.decor_mut() = old.decor().clone();
        table[key] = Item::Value(new);
        return;
    }
    table.insert(key, value(new));
}

/// The value as TOML has it.
fn written_value(kind: Option<Kind>, text: &str) -> Value {
    let number = || text.replace('_', "").parse::<i64>().ok().map(Value::from);
    let float = || text.parse::<f64>().ok().map(Value::from);
    let switch = || text.parse::<bool>().ok().map(Value::from);
    let read = match kind {
        Some(Kind::Size { .. }) => number(),
        Some(Kind::Number { .. }) => float(),
        Some(Kind::Switch) => switch(),
        Some(Kind::Texts) if text.contains(',') => {
            let names = text.trim_matches(['[', ']']).split(',').map(|name| name.trim().trim_matches('"').to_owned());
            Some(Value::Array(names.collect()))
        }
        Some(_) => None,
        // Fields of a model's config have the type that they are written in.
        None => number().or_else(float).or_else(switch),
    };
    read.unwrap_or_else(|| Value::from(text))
}

/// `True`, as PyTorch's settings write it.
fn capitalised_words(text: &str) -> String {
    match text {
        "true" => "True".to_owned(),
        "false" => "False".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, changes: &[&str], expected: &str) {
        let changes: Vec<_> = changes.iter().map(|change| Override::assignment(change).unwrap()).collect();
        assert_eq!(patch_toml(text, &changes).unwrap(), expected);
    }

    #[test]
    fn comments_and_order_stay() {
        check(
            "# a job\nmodel = \"gpt2\" # small\nseq_len = 8 # short\n\n[lora]\nr = 4\n",
            &["seq_len=16", "lora.r=8", "optimizer=adamw_fused", "grpo.beta=0"],
            "# a job\nmodel = \"gpt2\" # small\nseq_len = 16 # short\noptimizer = \"adamw_fused\"\n\n[lora]\nr = 8\n\n[grpo]\n\
             beta = 0.0\n",
        );
    }

    #[test]
    fn texts_become_tables_where_they_must() {
        check(
            "model = \"gpt2\"\nseq_len = 8\n",
            &["model.n_layer=2"],
            "seq_len = 8\n\n[model]\nname = \"gpt2\"\nn_layer = 2\n",
        );
        check(
            "allocator = \"max_split_size_mb:64\"\n",
            &["allocator.expandable_segments=true"],
            "allocator = \"max_split_size_mb:64,expandable_segments:True\"\n",
        );
    }

    #[test]
    fn an_empty_job_can_be_written() {
        check("", &["model=gpt2", "gradient-checkpointing=true"], "model = \"gpt2\"\ngradient_checkpointing = true\n");
        assert!(patch_toml("model = ", &[]).is_err());
    }
}
