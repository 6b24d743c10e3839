//! [`Notify`]: tells of an alert: the bell, a command, a web hook on this machine.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::alert::Alert;
use crate::format::alert_json;

/// A hook has so long to answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Who is told.
#[derive(Clone, Debug, Default)]
pub struct Notify {
    /// Ring the terminal's bell.
    pub bell: bool,
    /// A command of the user's for the shell; the alert is in its environment, never in its text.
    pub command: Option<String>,
    /// Where to post the alert as JSON.
    pub hook: Option<Hook>,
}

/// A web hook on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    address: SocketAddr,
    host: String,
    path: String,
}

impl Hook {
    /// The hook under `url`: plain http on a loopback address.
    ///
    /// # Errors
    /// When it is none; says why.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = url.strip_prefix("http://").ok_or("a hook begins with `http://`")?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_plain(rest) || host.contains('@') {
            return Err("a hook is `http://127.0.0.1:PORT/PATH`".to_owned());
        }
        let with_port = if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let mut found = with_port.to_socket_addrs().map_err(|error| format!("`{host}`: {error}"))?;
        let address = found.find(|address| is_loopback(address.ip()));
        let address =
            address.ok_or_else(|| format!("`{host}` is not this machine; a hook is on a loopback address"))?;
        Ok(Self { address, host: host.to_owned(), path: format!("/{path}") })
    }

    fn post_body(&self, body: &str) -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&self.address, TIMEOUT)?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let (path, host, length) = (&self.path, &self.host, body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        // In one piece: a hook that answers after the first would close the connection on the rest.
        stream.write_all((head + body).as_bytes())?;
        // The answer is read so that the hook sees an orderly end; what it says does not matter.
        stream.read(&mut [0; 512]).map(|_| ())
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

impl Notify {
    /// Tells of an alert that is new. What fails is said on stderr and holds nothing up.
    pub fn tell_alert(&self, alert: &Alert) {
        if self.bell {
            // Nothing can be done about a stderr that is closed.
            let _ = io::stderr().write_all(b"\x07");
        }
        if let Some(command) = &self.command {
            run_command(command, alert);
        }
        if let Some(hook) = self.hook.clone() {
            let body = alert_json(alert).to_string();
            thread::spawn(move || hook.post_body(&body));
        }
    }
}

fn run_command(command: &str, alert: &Alert) {
    let child = Command::new("sh")
        .args(["-c", command])
        .env("TONNAGE_ALERT_KIND", alert.kind.word())
        .env("TONNAGE_ALERT_DEVICE", &alert.device)
        .env("TONNAGE_ALERT_TEXT", crate::format::printable_text(&alert.text))
        .env("TONNAGE_ALERT_ADVICE", crate::format::printable_text(&alert.advice))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Ok(mut child) = child {
        thread::spawn(move || child.wait());
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn hooks_are_on_this_machine() {
        for url in [
            "https://127.0.0.1/",
            "http://192.0.2.1/",
            "http://127.0.0.1@192.0.2.1/",
            "http://a b/",
            "ftp://x",
            "http://127.0.0.1:1/\r\nX: y",
        ] {
            assert!(Hook::parse(url).is_err(), "{url}");
        }
        let hook = Hook::parse("http://127.0.0.1:9/a/b?c").unwrap();
        assert_eq!((hook.path.as_str(), hook.address.port()), ("/a/b?c", 9));
        assert!(Hook::parse("http://[::1]:9").is_ok());
    }

    #[test]
    fn a_hook_gets_json() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hook = Hook::parse(&format!("http://{}/x", listener.local_addr().unwrap())).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = [0; 4096];
            let length = stream.read(&mut text).unwrap();
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            String::from_utf8_lossy(&text[..length]).into_owned()
        });
        hook.post_body("{\"a\":1}").unwrap();
        let request = server.join().unwrap();
        assert!(request.starts_with("POST /x HTTP/1.1\r\n") && request.ends_with("\r\n\r\n{\"a\":1}"), "{request}");
    }
}
