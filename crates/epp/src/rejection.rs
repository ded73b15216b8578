//! A fault as the message that answers a request without an endpoint.

use proto::{
    ext_proc::{HeaderMutation, ImmediateResponse},
    status::HttpStatus,
};
use router::Fault;

use crate::headers::set;

/// The message to the proxy. The code of the fault is the detail in the proxy's access log.
pub(crate) fn immediate(fault: &Fault) -> ImmediateResponse {
    let set_headers = fault.headers().map(|(name, value)| set(name, value)).collect();
    ImmediateResponse {
        status: Some(HttpStatus { code: fault.status.into() }),
        headers: Some(HeaderMutation { set_headers, remove_headers: Vec::new() }),
        body: fault.body().into(),
        grpc_status: None,
        details: fault.code.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proto::status::StatusCode;
    use router::Refusal;

    use super::*;

    #[test]
    fn a_fault_is_told_whole_and_with_a_status_that_the_proxy_takes() {
        let faults = [
            Fault::of_refusal(Refusal::AllFiltered),
            Fault::of_refusal(Refusal::NoEndpoints),
            Fault::too_large(5),
            Fault::caller(400, "invalid_body", String::new()),
        ];
        for fault in faults {
            let response = immediate(&fault);
            let code = response.status.unwrap().code;
            assert_eq!(code, i32::from(fault.status));
            assert!(StatusCode::try_from(code).is_ok_and(|known| known != StatusCode::Empty));
            let headers: Vec<_> = response.headers.unwrap().set_headers;
            let headers = headers.into_iter().filter_map(|set| set.header);
            let headers: Vec<_> = headers.map(|header| (header.key, header.raw_value)).collect();
            let expected: Vec<_> =
                fault.headers().map(|(name, value)| (name.to_owned(), value.into())).collect();
            assert_eq!(headers, expected);
            assert_eq!(response.body, fault.body());
            assert_eq!(response.details, fault.code);
        }
    }
}
