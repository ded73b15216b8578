//! An HTTP/1.1 client that opens a connection for each request and closes it when the response is
//! dropped, as a user does who presses Ctrl-C.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinHandle};

use crate::wait::soon;

/// A connection that ends with this.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A response whose body is still to come. Dropping it closes the connection.
#[derive(Debug)]
pub struct Response {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    body: Incoming,
    _connection: Connection,
}

/// A response with its whole body.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Response {
    /// The next piece of the body; `None` at its end, an error where it breaks off.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        while let Some(frame) = soon(self.body.frame()).await {
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The body as far as it comes, and whether it came whole.
    pub async fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            match self.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return (body, true),
                Err(_) => return (body, false),
            }
        }
    }

    /// Value of the header called `name`; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }
}

impl Answer {
    /// Value of the header called `name`; empty if there is none.
    pub fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }

    /// The body as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).map_or("", |value| value.to_str().unwrap())
}

/// Sends `request` to `address` (`host:port`) and gives the response once its head is there.
/// Dropping the future closes the connection.
///
/// # Panics
/// If no response comes.
async fn send(address: &str, mut request: Request<Full<Bytes>>) -> Response {
    let socket = TcpStream::connect(address).await;
    let socket = socket.unwrap_or_else(|error| panic!("{address}: {error}"));
    socket.set_nodelay(true).unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
    let connection = Connection(tokio::spawn(async move {
        // How it ended, the body tells.
        let _ = connection.await;
    }));
    request.headers_mut().insert(http::header::HOST, address.parse().unwrap());
    let response = soon(sender.send_request(request)).await;
    let response = response.unwrap_or_else(|error| panic!("{address} gave no response: {error}"));
    let (head, body) = response.into_parts();
    Response { status: head.status, headers: head.headers, body, _connection: connection }
}

/// Posts `body` as JSON, with further `headers`.
///
/// # Panics
/// If no response comes.
pub async fn post_with(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Response {
    let mut request = Request::builder().method(Method::POST).uri(path);
    request = request.header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(address, request.body(Full::new(body.into())).unwrap()).await
}

/// Posts `body` as JSON and gives the whole answer.
///
/// # Panics
/// If no response comes, or only a part of it.
pub async fn post(address: &str, path: &str, body: impl Into<Bytes>) -> Answer {
    whole(post_with(address, path, &[], body).await).await
}

/// The whole answer to a GET.
///
/// # Panics
/// If no response comes, or only a part of it.
pub async fn get(address: &str, path: &str) -> Answer {
    let request = Request::builder().uri(path).body(Full::default()).unwrap();
    whole(send(address, request).await).await
}

async fn whole(mut response: Response) -> Answer {
    let (body, is_whole) = response.rest().await;
    assert!(is_whole, "the body broke off: {}", String::from_utf8_lossy(&body));
    Answer { status: response.status, headers: response.headers, body: body.into() }
}

impl Response {
    /// The whole answer.
    ///
    /// # Panics
    /// If the body breaks off.
    pub async fn whole(self) -> Answer {
        whole(self).await
    }
}
