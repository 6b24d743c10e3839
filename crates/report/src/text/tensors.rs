//! The largest modules and tensors at the peak; those that differ in their layer only share a row.

use tonnage_core::estimate::{Estimate, LiveTensor};
use tonnage_core::small_sort::SmallSort;
use tonnage_core::trace::Category;
use tonnage_core::units::Bytes;

use super::paint::{BOLD, DIM, paint_text};
use super::table::{Align, Table, styled_cell};
use crate::category;
use crate::look::Look;

/// A row: the first of its tensors, its module with layers as `*`, and how many there are.
struct Group<'a> {
    tensor: &'a LiveTensor,
    module: String,
    count: u64,
}

/// The `top` largest rows.
pub fn largest_tensors(estimate: &Estimate, top: usize, look: &Look) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for tensor in &estimate.at_peak.largest {
        let module = any_layer(&tensor.module);
        match groups.iter_mut().find(|group| group.holds(tensor, &module)) {
            Some(group) => group.count += 1,
            None => groups.push(Group { tensor, module, count: 1 }),
        }
    }
    groups.small_sort_by_key(|group| std::cmp::Reverse(group.tensor.bytes * group.count));
    let columns = [
        ("", Align::Right),
        ("each", Align::Right),
        ("what", Align::Left),
        ("made by", Align::Left),
        ("in", Align::Left),
        ("born", Align::Left),
    ];
    let mut table = Table::new(&columns).flexible(4).flexible(3);
    groups.iter().take(top).for_each(|group| table.row(group_row(group, look)));
    let title = format!("largest tensors at the peak, of {}", estimate.at_peak.tensors);
    format!("  {}\n{}\n", paint_text(DIM, &title), table.render(look))
}

/// The `top` modules that hold most, all layers together.
pub fn module_table(estimate: &Estimate, top: usize, look: &Look) -> String {
    let mut groups: Vec<(String, u64, u64)> = Vec::new();
    for (module, bytes) in &estimate.at_peak.by_module {
        let name = any_layer(module);
        match groups.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, sum, count)) => (*sum, *count) = (*sum + bytes, *count + 1),
            None => groups.push((name, *bytes, 1)),
        }
    }
    groups.small_sort_by_key(|(_, bytes, _)| std::cmp::Reverse(*bytes));
    let mut table = Table::new(&[("", Align::Right), ("together", Align::Right), ("in", Align::Left)]).flexible(2);
    for (name, bytes, count) in groups.into_iter().take(top) {
        let times = if count > 1 { format!("{count} {}", look.pick("×", "x")) } else { String::new() };
        let name = if name.is_empty() { "outside the model".to_owned() } else { name };
        table.row(vec![styled_cell(times, DIM), styled_cell(Bytes(bytes).to_string(), BOLD), name.into()]);
    }
    format!("  {}\n{}\n", paint_text(DIM, "largest modules at the peak"), table.render(look))
}

impl Group<'_> {
    fn holds(&self, tensor: &LiveTensor, module: &str) -> bool {
        let same = |a: &LiveTensor, b: &LiveTensor| (a.bytes, a.op, a.category) == (b.bytes, b.op, b.category);
        self.module == module && same(self.tensor, tensor)
    }
}

fn group_row(group: &Group<'_>, look: &Look) -> Vec<super::table::Cell> {
    let tensor = group.tensor;
    let count = if group.count > 1 { format!("{} {}", group.count, look.pick("×", "x")) } else { String::new() };
    let op = tensor.op.split('.').next().unwrap_or(tensor.op);
    let loaded = matches!(tensor.category, Category::Parameter | Category::Buffer);
    vec![
        styled_cell(count, DIM),
        styled_cell(Bytes(tensor.bytes).to_string(), BOLD),
        styled_cell(category::shown_as(tensor.category).title, category::category_style(tensor.category)),
        if loaded { "loading".into() } else { tensor.node.unwrap_or(op).into() },
        group.module.as_str().into(),
        styled_cell(tensor.born.label(), DIM),
    ]
}

/// `transformer.h.*.mlp` for `transformer.h.11.mlp`.
fn any_layer(module: &str) -> String {
    let part =
        |part: &str| if part.bytes().all(|byte| byte.is_ascii_digit()) { "*".to_owned() } else { part.to_owned() };
    if module.is_empty() { String::new() } else { module.split('.').map(part).collect::<Vec<_>>().join(".") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_become_stars() {
        assert_eq!(any_layer("transformer.h.11.mlp.c_fc"), "transformer.h.*.mlp.c_fc");
        assert_eq!(any_layer("lm_head"), "lm_head");
        assert_eq!(any_layer(""), "");
    }
}
