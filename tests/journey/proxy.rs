//! A proxy in a few lines: shows one exchange to the endpoint picker over gRPC, message by message.

use bytes::Bytes;
use harness::soon;
use proto::{
    core::{HeaderMap, HeaderValue, HeaderValueOption},
    ext_proc::{
        HeadersResponse, HttpBody, HttpHeaders, ProcessingRequest, ProcessingResponse,
        external_processor_client::ExternalProcessorClient, processing_request::Request as Part,
        processing_response::Response,
    },
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Streaming, transport::Channel};

/// A proxy that is connected to the endpoint picker.
#[derive(Debug)]
pub(crate) struct Proxy(Channel);

/// One exchange.
#[derive(Debug)]
pub(crate) struct Exchange {
    messages: mpsc::Sender<ProcessingRequest>,
    answers: Streaming<ProcessingResponse>,
}

impl Proxy {
    pub(crate) async fn connect(port: u16) -> Self {
        let address = format!("http://127.0.0.1:{port}");
        Self(soon(Channel::from_shared(address).unwrap().connect()).await.unwrap())
    }

    /// Shows a request, and gives the address it is sent to with the exchange.
    pub(crate) async fn request(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (String, Exchange) {
        let (messages, receiver) = mpsc::channel(8);
        let mut client = ExternalProcessorClient::new(self.0.clone());
        let answers = soon(client.process(ReceiverStream::new(receiver))).await.unwrap();
        let mut exchange = Exchange { messages, answers: answers.into_inner() };
        let head = [&[(":method", "POST"), (":path", path)], headers].concat();
        exchange.send(Part::RequestHeaders(http_headers(&head))).await;
        let body = Bytes::copy_from_slice(body.as_bytes());
        exchange.send(Part::RequestBody(HttpBody { body, end_of_stream: true })).await;
        let destination = loop {
            let Response::RequestHeaders(headers) = exchange.next().await else { continue };
            break header(headers, "x-gateway-destination-endpoint").unwrap();
        };
        assert!(matches!(exchange.next().await, Response::RequestBody(_)));
        (destination, exchange)
    }
}

impl Exchange {
    /// Shows the head of the response, and gives the values of `names` that the client is to see.
    pub(crate) async fn response<const N: usize>(
        &mut self,
        headers: &[(&str, &str)],
        names: [&str; N],
    ) -> [String; N] {
        self.send(Part::ResponseHeaders(http_headers(headers))).await;
        let Response::ResponseHeaders(answer) = self.next().await else { unreachable!() };
        names.map(|name| header(answer.clone(), name).unwrap_or_default())
    }

    /// Shows a piece of the response, and waits until it was looked at.
    pub(crate) async fn body(&mut self, body: &'static str, end_of_stream: bool) {
        self.send(Part::ResponseBody(HttpBody { body: body.into(), end_of_stream })).await;
        assert!(matches!(self.next().await, Response::ResponseBody(_)));
    }

    async fn send(&self, part: Part) {
        let message = ProcessingRequest { request: Some(part), ..ProcessingRequest::default() };
        soon(self.messages.send(message)).await.unwrap();
    }

    async fn next(&mut self) -> Response {
        soon(self.answers.message()).await.unwrap().unwrap().response.unwrap()
    }
}

fn http_headers(pairs: &[(&str, &str)]) -> HttpHeaders {
    let header = |(key, value): &(&str, &str)| HeaderValue {
        key: (*key).to_owned(),
        value: String::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    let headers = Some(HeaderMap { headers: pairs.iter().map(header).collect() });
    HttpHeaders { headers, end_of_stream: false }
}

/// What `answer` sets header `name` to.
fn header(answer: HeadersResponse, name: &str) -> Option<String> {
    let set = answer.response?.header_mutation?.set_headers;
    let found = |set: HeaderValueOption| set.header.filter(|header| header.key == name);
    let value = set.into_iter().find_map(found)?.raw_value;
    Some(String::from_utf8(value.to_vec()).unwrap())
}
