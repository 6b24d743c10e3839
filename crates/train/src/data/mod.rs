//! What is trained on: files -> texts and rows ([`corpus`]) -> tokens ([`tokenizer`]) -> batches in an order that a seed decides
//! ([`batches`]).

pub mod batches;
pub mod chat;
pub mod corpus;
mod order;
pub mod rows;
pub mod tokenizer;
pub mod vocabulary;
pub mod windows;

pub use order::Position;
