//! `tonnage`: parse the command line, run one command, exit with its code.

fn main() {}
