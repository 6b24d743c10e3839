//! A model's own chat template, rendered as transformers does (5.17, `utils/chat_template_utils.py`): Jinja with `trim_blocks` and
//! `lstrip_blocks`, `break` and `continue`, the functions that templates call, and the parts between `{% generation %}` and
//! `{% endgeneration %}`, which the assistant says.

mod functions;
mod marks;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use minijinja::{Environment, Value as JinjaValue};
use serde_json::Value;

use crate::error::TrainError;

/// The file of a template, where it has one of its own.
const FILE: &str = "chat_template.jinja";
/// The file of a tokenizer's settings.
const SETTINGS: &str = "tokenizer_config.json";
/// Names of tokens that templates may write.
const TOKENS: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// Steps of one rendering: a conversation of some thousand messages takes a hundredth of it.
const MOST_STEPS: u64 = 50_000_000;
const NAME: &str = "chat";

/// A template, ready to render.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    tokens: BTreeMap<String, String>,
    path: PathBuf,
    marks: bool,
    dates: bool,
}

/// A conversation as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// As the model sees it.
    pub text: String,
    /// What the assistant says in it, as places of its bytes.
    pub learnt: Vec<Range<usize>>,
}

impl ChatTemplate {
    /// The template beside a tokenizer, where there is one.
    ///
    /// # Errors
    /// When a file is damaged, or the template is no Jinja.
    pub fn beside(folder: &Path) -> Result<Option<Self>, TrainError> {
        let settings = read_template(&folder.join(SETTINGS))?;
        let settings: Value = match &settings {
            Some(text) => serde_json::from_str(text)
                .map_err(|error| TrainError::about_weights(&folder.join(SETTINGS), format!("is damaged: {error}")))?,
            None => Value::Null,
        };
        let file = folder.join(FILE);
        let (text, path) = match (read_template(&file)?, settings.get("chat_template")) {
            (Some(text), _) => (text, file),
            (None, Some(said)) => match default_of(said) {
                Some(text) => (text.to_owned(), folder.join(SETTINGS)),
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let token = |name: &str| {
            let said = settings.get(name)?;
            Some((name.to_owned(), said.as_str().or_else(|| said.get("content")?.as_str())?.to_owned()))
        };
        Self::new(&text, TOKENS.into_iter().filter_map(token).collect(), &path).map(Some)
    }

    /// Of a template's text and the tokens that it may write; errors name `path`.
    ///
    /// # Errors
    /// When it is no Jinja.
    pub fn new(text: &str, tokens: BTreeMap<String, String>, path: &Path) -> Result<Self, TrainError> {
        let marked = marks::mark_text(text);
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_fuel(Some(MOST_STEPS));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        functions::add_functions(&mut environment);
        let marks = marked != text;
        let dates = text.contains("strftime_now");
        environment
            .add_template_owned(NAME, marked)
            .map_err(|error| template_failed(path, "is no template that can be read", &error))?;
        Ok(Self { environment, tokens, path: path.to_owned(), marks, dates })
    }

    /// Where it was found.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it writes the day on which it is rendered.
    pub fn writes_dates(&self) -> bool {
        self.dates
    }

    /// `apply_chat_template(messages, tokenize=False, add_generation_prompt=...)`, with what lies between the template's own marks.
    ///
    /// # Errors
    /// What the template raises, with its line.
    pub fn render(&self, messages: &[Value], add_generation_prompt: bool) -> Result<Rendered, TrainError> {
        let mut context: BTreeMap<&str, JinjaValue> =
            self.tokens.iter().map(|(name, token)| (name.as_str(), token.as_str().into())).collect();
        context.insert("messages", JinjaValue::from_serialize(messages));
        context.insert("add_generation_prompt", add_generation_prompt.into());
        context.insert("tools", ().into());
        context.insert("documents", ().into());
        let template = self.environment.get_template(NAME);
        let text = template.and_then(|template| template.render(JinjaValue::from_serialize(&context)));
        let text = text.map_err(|error| template_failed(&self.path, "cannot be applied to these messages", &error))?;
        Ok(if self.marks { marks::unmark_text(&text) } else { Rendered { text, learnt: Vec::new() } })
    }

    /// A conversation with what the assistant says in it: by the template's marks, else by what each of its messages adds.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`], and when what a message adds cannot be told.
    pub fn conversation(&self, messages: &[Value]) -> Result<Rendered, TrainError> {
        let mut whole = self.render(messages, false)?;
        if self.marks {
            return Ok(whole);
        }
        for at in messages.iter().enumerate().filter(|(_, message)| is_assistants(message)).map(|(at, _)| at) {
            let before = self.render(&messages[..at], true)?.text;
            let after = self.render(&messages[..=at], false)?.text;
            if !(whole.text.starts_with(&after) && after.starts_with(&before)) {
                return Err(TrainError::refused_with(
                    format!(
                        "{}: the template has no `{{% generation %}}`, and writes message {} otherwise when others follow it: what the \
                         assistant says cannot be told",
                        self.path.display(),
                        at + 1
                    ),
                    "put {% generation %} and {% endgeneration %} around what it says, learn everything \
                     (`assistant_only_loss` = false below [data]), or write `prompt` and `completion`",
                ));
            }
            whole.learnt.push(before.len()..after.len());
        }
        Ok(whole)
    }
}

/// Whether the assistant says it.
pub fn is_assistants(message: &Value) -> bool {
    message.get("role").and_then(Value::as_str) == Some("assistant")
}

fn read_template(path: &Path) -> Result<Option<String>, TrainError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TrainError::about_file(path, error)),
    }
}

/// The template of a setting: a text, or a list of named ones.
fn default_of(said: &Value) -> Option<&str> {
    let named = |one: &&Value| one.get("name").and_then(Value::as_str) == Some("default");
    said.as_str().or_else(|| said.as_array()?.iter().find(named)?.get("template")?.as_str())
}

fn template_failed(path: &Path, what: &str, error: &minijinja::Error) -> TrainError {
    let said = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let line = error.line().map_or_else(String::new, |line| format!(" (line {line} of it)"));
    TrainError::refused_with(
        format!("{}: the chat template {what}: {said}{line}", path.display()),
        "change the messages or the template, or write `prompt` and `completion`",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(text: &str) -> ChatTemplate {
        let tokens = BTreeMap::from([("eos_token".to_owned(), "</s>".to_owned())]);
        ChatTemplate::new(text, tokens, Path::new("here")).unwrap()
    }

    fn talk() -> Vec<Value> {
        vec![
            json!({"role": "user", "content": " hi "}),
            json!({"role": "assistant", "content": "hello"}),
            json!({"role": "user", "content": "more"}),
            json!({"role": "assistant", "content": "yes"}),
        ]
    }

    fn said(rendered: &Rendered) -> Vec<&str> {
        rendered.learnt.iter().map(|place| &rendered.text[place.clone()]).collect()
    }

    const TURNS: &str = "{% for message in messages %}\n<{{ message['role'] }}>{{ message.content.strip() }}{{ eos_token }}\n\
                         {% endfor %}\n{% if add_generation_prompt %}\n<assistant>{% endif %}";

    #[test]
    fn what_the_assistant_adds_is_what_it_says() {
        let rendered = template(TURNS).conversation(&talk()).unwrap();
        assert_eq!(rendered.text, "<user>hi</s>\n<assistant>hello</s>\n<user>more</s>\n<assistant>yes</s>\n");
        assert_eq!(said(&rendered), ["hello</s>\n", "yes</s>\n"]);
    }

    #[test]
    fn its_own_marks_come_first() {
        let marked = "{% for message in messages %}\n  {% if message.role == 'assistant' %}\n  {%- generation %}\n{{ message.content }}!\n\
                      {%- endgeneration %}\n{% else %}[{{ message.content }}]{% endif %}{% endfor %}";
        let rendered = template(marked).conversation(&talk()).unwrap();
        assert_eq!(rendered.text, "[ hi ]hello![more]yes!");
        assert_eq!(said(&rendered), ["hello!", "yes!"]);
    }

    #[test]
    fn what_cannot_be_told_or_rendered_is_said() {
        let last = "{% for m in messages %}{% if loop.last %}(last){% endif %}{{ m.content }}{% endfor %}";
        let error = template(last).conversation(&talk()).unwrap_err().to_string();
        assert!(
            error.contains("message 2 otherwise when others follow") && error.contains("{% generation %}"),
            "{error}"
        );
        let raises =
            "{% if messages[0].role != 'system' %}\n{{ raise_exception('a system message first') }}{% endif %}";
        let error = template(raises).conversation(&talk()).unwrap_err().to_string();
        assert!(error.contains("a system message first") && error.contains("line 2"), "{error}");
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}";
        assert!(template(endless).render(&talk(), false).unwrap_err().to_string().contains("cannot be applied"));
        assert!(
            ChatTemplate::new("{% if %}", BTreeMap::new(), Path::new("here"))
                .unwrap_err()
                .to_string()
                .contains("here: ")
        );
    }

    #[test]
    fn it_is_found_where_transformers_puts_it() {
        let folder = std::env::temp_dir().join(format!("tonnage-chat-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert!(ChatTemplate::beside(&folder).unwrap().is_none());
        let settings = json!({"eos_token": {"content": "<e>"}, "chat_template": [
            {"name": "tool_use", "template": "no"}, {"name": "default", "template": "of the list{{ eos_token }}"}]});
        fs::write(folder.join(SETTINGS), settings.to_string()).unwrap();
        let text = || ChatTemplate::beside(&folder).unwrap().unwrap().render(&talk(), false).unwrap().text;
        assert_eq!(text(), "of the list<e>");
        fs::write(folder.join(FILE), "of the file{{ eos_token }}{{ bos_token }}").unwrap();
        assert_eq!(text(), "of the file<e>");
        fs::write(folder.join(SETTINGS), "{").unwrap();
        assert!(ChatTemplate::beside(&folder).unwrap_err().to_string().contains("is damaged"));
        fs::remove_dir_all(folder).unwrap();
    }
}
