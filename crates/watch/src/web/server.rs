//! [`serve`]: answers requests from a [`Site`], a thread each, few at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::connections::Connections;
use super::request::{MOST_BYTES, Refusal, Request};
use super::site::{Page, Site};

/// Whoever takes longer to say what is wanted, all in all, is cut off.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// Whoever takes longer to fetch a part of the answer is cut off.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server rests when the system refuses connections.
const REST: Duration = Duration::from_millis(100);

/// Scripts and styles from here alone, nothing else from anywhere, in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
form-action 'none'; frame-ancestors 'none'";

/// Answers at `address` from now on; returns the address with the port that was found.
///
/// # Errors
/// When the address cannot be listened on.
pub fn serve_site(address: SocketAddr, site: Site) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let site = Arc::new(site);
    thread::Builder::new().name("http".to_owned()).spawn(move || accept_connections(&listener, address, &site))?;
    Ok(address)
}

fn accept_connections(listener: &TcpListener, address: SocketAddr, site: &Arc<Site>) {
    let open = Connections::default();
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            thread::sleep(REST);
            continue;
        };
        let Some(place) = open.place_for(&stream) else { continue };
        let site = Arc::clone(site);
        thread::spawn(move || {
            // A client that goes away is its own affair.
            let _ = answer_request(stream, address, &site, || place.has_asked());
        });
    }
}

fn answer_request(mut stream: TcpStream, address: SocketAddr, site: &Site, has_asked: impl Fn()) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = read_head(&mut stream)?.ok_or(Refusal::BadRequest).and_then(|head| Request::parse(&head));
    has_asked();
    let is_local = address.ip().is_loopback();
    let (status, page, head_only) = match request {
        // A page of another site that had its name point here would otherwise read this one.
        Ok(request) if is_local && !request.is_asked_by_address() => {
            ("403 Forbidden", Page::text("forbidden\n"), false)
        }
        Ok(request) => {
            let number = |key: &str| request.number(key);
            match site.page_at(&request.path, &number) {
                Some(page) => ("200 OK", page, request.head_only),
                None => ("404 Not Found", Page::text("not found\n"), request.head_only),
            }
        }
        Err(Refusal::BadRequest) => ("400 Bad Request", Page::text("bad request\n"), false),
        Err(Refusal::MethodNotAllowed) => ("405 Method Not Allowed", Page::text("only GET\n"), false),
    };
    let body = page.body.as_bytes();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nContent-Security-Policy: {POLICY}\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Cache-Control: no-store\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n",
        page.kind,
        body.len(),
    )?;
    if !head_only {
        stream.write_all(body)?;
    }
    stream.flush()
}

/// The head of a request up to its empty line; `None` when it is too long or no text.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    let began = Instant::now();
    loop {
        let left = HEAD_TIMEOUT.checked_sub(began.elapsed()).filter(|left| !left.is_zero());
        stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        let count = stream.read(&mut part)?;
        head.extend_from_slice(&part[..count]);
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(String::from_utf8(head).ok());
        }
        if count == 0 || head.len() > MOST_BYTES {
            return Ok(None);
        }
    }
}
