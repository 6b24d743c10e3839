//! What is trained on: files -> texts ([`corpus`]) -> tokens ([`vocabulary`]) -> windows in an order that a seed decides ([`windows`]).

pub mod corpus;
pub mod vocabulary;
pub mod windows;
