/// A router over endpoints at `addresses`.
pub(crate) fn router_over(addresses: &[&str]) -> Arc<Router> {
    let endpoint = |(at, address): (usize, &&str)| types::Endpoint {
        id: types::EndpointId::new("default", &format!("e{at}")),
        address: address.parse().unwrap(),
        labels: [].into(),
    };
    let pool = datalayer::Pool::new(addresses.iter().enumerate().map(endpoint));
    Arc::new(Router::new(Arc::new(pool)))
}
