//! What developers of Tonnage run: accuracy, tidy, generated files.

fn main() {}
