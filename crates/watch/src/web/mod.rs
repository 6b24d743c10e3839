//! The page and the metrics over HTTP: `server` speaks as much of HTTP as that needs, `site` says what there is to get.
//! Nothing can be changed or run from there.

mod connections;
mod request;
mod server;
mod site;

pub use server::serve_site;
pub use site::Site;
