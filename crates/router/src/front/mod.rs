//! What every front needs: reading requests from their bytes, watching answers as they pass, and the
//! error answers of our own.

mod body;
mod chunk;
mod fault;
mod headers;
mod messages;
mod prompt;
mod scan;
mod sse;
mod strings;

pub use body::{BodyError, Head, read_request};
pub use chunk::Usage;
pub use fault::Fault;
pub use headers::{HeaderError, read_scope, read_session, read_slo};
pub use scan::{Kind, ResponseScanner, Seen};
