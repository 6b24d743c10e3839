//! The head of a request: as much of it as a server needs that only gives things out.

use std::net::IpAddr;

/// A longer head is refused.
pub(super) const MOST_BYTES: usize = 8 * 1024;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Whether only the head of the answer is wanted.
    pub head_only: bool,
    /// The path, without what follows a `?`.
    pub path: String,
    /// What follows the `?`.
    pub query: String,
    /// The name under which the server was asked.
    pub host: Option<String>,
}

/// Why a request is not answered: a status of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    BadRequest,
    MethodNotAllowed,
}

impl Request {
    /// The request whose head is `text`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (method, target, version) = (words.next(), words.next(), words.next());
        let is_http = version.is_some_and(|version| version.starts_with("HTTP/1.")) && words.next().is_none();
        let target = target.filter(|target| is_http && target.starts_with('/')).ok_or(Refusal::BadRequest)?;
        let head_only = match method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return Err(Refusal::MethodNotAllowed),
        };
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host").then(|| value.trim().to_owned())
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Ok(Self { head_only, path: path.to_owned(), query: query.to_owned(), host: lines.find_map(header) })
    }

    /// Whether the name is one that no other site can have its name server give to this machine.
    pub fn is_asked_by_address(&self) -> bool {
        let Some(host) = &self.host else { return true };
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
    }

    /// The number under `key` of the query.
    pub fn number(&self, key: &str) -> Option<f64> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .filter(|(name, _)| *name == key)
            .find_map(|(_, value)| value.parse::<f64>().ok())
            .filter(|number| number.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_get() {
        let request = Request::parse("GET /data.json?since=1.5&x=2 HTTP/1.1\r\nHOST: localhost:1\r\n").unwrap();
        assert_eq!(
            (request.path.as_str(), request.number("since"), request.number("y")),
            ("/data.json", Some(1.5), None)
        );
        assert!(Request::parse("HEAD / HTTP/1.0").unwrap().head_only);
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "get"] {
            let found = Request::parse(&format!("{method} / HTTP/1.1\r\n"));
            assert_eq!(found, Err(Refusal::MethodNotAllowed));
        }
        for text in ["", "GET", "GET /", "GET x HTTP/1.1", "GET / HTTP/2", "GET / x HTTP/1.1"] {
            assert!(Request::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_other_sites_are_told_apart() {
        let asked =
            |host: &str| Request::parse(&format!("GET / HTTP/1.1\r\nHost: {host}")).unwrap().is_asked_by_address();
        assert!(asked("127.0.0.1:9840") && asked("[::1]:9840") && asked("LOCALHOST"));
        assert!(!asked("evil.example:9840") && !asked("127.0.0.1.evil.example") && !asked(""));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = Request::parse(&text);
        }
    }
}
