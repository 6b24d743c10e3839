//! `{% generation %}` and `{% endgeneration %}`, tags of transformers' that Jinja has not: each becomes a character that no text has,
//! with the blanks around it taken as Jinja takes those of a tag.

use super::Rendered;

/// Where the assistant begins, and ends: two of Unicode's noncharacters, which stand for nothing in any text.
const MARKS: [(&str, char); 2] = [("generation", '\u{fdd0}'), ("endgeneration", '\u{fdd1}')];

/// The template with its marks.
pub(super) fn mark_text(text: &str) -> String {
    let mut marked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        let Some(end) = tag.find("%}") else { break };
        let (inside, behind) = (&tag[2..end], &tag[end + 2..]);
        let word = inside.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let Some((_, mark)) = MARKS.iter().find(|(name, _)| *name == word) else {
            marked.push_str(before);
            marked.push_str(&tag[..end + 2]);
            rest = behind;
            continue;
        };
        let kept = if inside.starts_with(['-', '+']) { before } else { without_indent(before) };
        marked.push_str(kept);
        let [open, close] = [inside.starts_with('-'), inside.ends_with('-')].map(|cuts| if cuts { "-" } else { "" });
        marked.push_str(&format!("{{{{{open} '{mark}' {close}}}}}"));
        // `trim_blocks`
        rest = if inside.ends_with(['-', '+']) { behind } else { behind.strip_prefix('\n').unwrap_or(behind) };
    }
    marked + rest
}

/// `lstrip_blocks`: blanks between the line's beginning and the tag go.
fn without_indent(before: &str) -> &str {
    let cut = before.trim_end_matches([' ', '\t']);
    if cut.is_empty() || cut.ends_with('\n') { cut } else { before }
}

/// The text without marks, and what lay between them.
pub(super) fn unmark_text(text: &str) -> Rendered {
    let mut rendered = Rendered::default();
    let mut begun = None;
    for character in text.chars() {
        match MARKS.iter().position(|(_, mark)| *mark == character) {
            Some(0) => begun = Some(rendered.text.len()),
            Some(_) => rendered.learnt.extend(begun.take().map(|begun| begun..rendered.text.len())),
            None => rendered.text.push(character),
        }
    }
    rendered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_become_marks_and_keep_what_they_do_to_blanks() {
        assert_eq!(mark_text("a {% if b %}c{% endif %}"), "a {% if b %}c{% endif %}");
        assert_eq!(
            mark_text("x\n  {% generation %}\ny {%- endgeneration -%} z"),
            "x\n{{ '\u{fdd0}' }}y {{- '\u{fdd1}' -}} z"
        );
        assert_eq!(mark_text("x {%+ generation %}y"), "x {{ '\u{fdd0}' }}y");
        assert_eq!(mark_text("{% generation"), "{% generation");
    }
}
