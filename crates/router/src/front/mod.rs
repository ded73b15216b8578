//! What every front needs: reading requests from their bytes and watching answers as they pass.

mod body;
mod chunk;
mod headers;
mod messages;
mod prompt;
mod scan;
mod sse;
mod strings;

pub use body::{BodyError, Head, read_request};
pub use chunk::Usage;
pub use headers::{HeaderError, read_slo};
pub use scan::{Kind, ResponseScanner, Seen};
