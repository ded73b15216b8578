//! Takes a request's body in, up to a limit.

use bytes::{Bytes, BytesMut};
use http::{StatusCode, header::CONNECTION};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use router::Fault;

use crate::answer::Refused;

/// How many times the limit is read and thrown away, so that a caller who is still sending gets to
/// read the answer instead of a broken connection.
const DISCARD_FACTOR: usize = 16;

/// The whole body, if it has `max` bytes at most.
///
/// `waits` tells that the caller sends only after it was told to go on: it is not told to when the
/// length it declares is too long.
pub(crate) async fn collect(mut body: Incoming, max: usize, waits: bool) -> Result<Bytes, Refused> {
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > max {
        if !waits {
            discard(&mut body, max).await;
        }
        return Err(too_large(max));
    }
    let Some(first) = next(&mut body).await? else { return Ok(Bytes::new()) };
    if first.len() <= max && body.is_end_stream() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(declared.max(first.len()).min(max));
    let mut chunk = first;
    loop {
        if whole.len() + chunk.len() > max {
            discard(&mut body, max).await;
            return Err(too_large(max));
        }
        whole.extend_from_slice(&chunk);
        let Some(following) = next(&mut body).await? else { return Ok(whole.freeze()) };
        chunk = following;
    }
}

/// The next data of `body`; trailers are left out.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Refused> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let message = format!("the request body cannot be read: {error}");
            Refused::caller(StatusCode::BAD_REQUEST, "unreadable_body", message)
        })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn discard(body: &mut Incoming, max: usize) {
    let mut left = max.saturating_mul(DISCARD_FACTOR);
    while let Ok(Some(data)) = next(body).await {
        left = left.saturating_sub(data.len());
        if left == 0 {
            return;
        }
    }
}

fn too_large(max: usize) -> Refused {
    Refused::from(Fault::too_large(max)).header(CONNECTION, http::HeaderValue::from_static("close"))
}
