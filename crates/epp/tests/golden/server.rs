//! The server around the exchanges: health and shutdown.

use epp::Options;
use tonic::{Code, transport::Channel};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::{
    drive::{POOL, Served, router_over, soon},
    messages::plain,
};

fn asked(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

async fn check(channel: &Channel, service: &str) -> Result<ServingStatus, Code> {
    let answer = soon(HealthClient::new(channel.clone()).check(asked(service))).await;
    answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
}

#[tokio::test]
async fn both_ports_answer_health_under_the_names_in_use() {
    let served = Served::start(Options::default(), &router_over(&POOL)).await;
    for channel in [&served.channel, &served.health] {
        for service in [
            "",
            "envoy.service.ext_proc.v3.ExternalProcessor",
            "inference-extension",
            "readiness",
            "liveness",
        ] {
            assert_eq!(check(channel, service).await, Ok(ServingStatus::Serving), "{service}");
        }
        assert_eq!(check(channel, "other").await, Err(Code::NotFound));
    }
}

#[tokio::test]
async fn readiness_follows_the_pool_and_liveness_does_not() {
    let router = router_over(&POOL);
    let served = Served::start(Options::default(), &router).await;
    let watched = soon(HealthClient::new(served.health.clone()).watch(asked("readiness"))).await;
    let mut watched = watched.unwrap().into_inner();
    let mut next = async || soon(watched.message()).await.unwrap().unwrap().status();
    assert_eq!(next().await, ServingStatus::Serving);
    let endpoints: Vec<_> =
        router.pool().endpoints().iter().map(|state| state.endpoint.clone()).collect();
    router.pool().replace([]);
    assert_eq!(next().await, ServingStatus::NotServing);
    assert_eq!(check(&served.health, "liveness").await, Ok(ServingStatus::Serving));
    router.pool().replace(endpoints);
    assert_eq!(next().await, ServingStatus::Serving);
}

#[tokio::test]
async fn shutdown_lets_streams_in_flight_end() {
    let router = router_over(&POOL);
    let mut served = Served::start(Options::default(), &router).await;
    let mut stream = served.stream().await;
    let [headers, body, answer, end] = plain();
    stream.send(headers).await;
    stream.send(body).await;
    stream.next().await.unwrap().unwrap();
    stream.next().await.unwrap().unwrap();

    let watched = soon(HealthClient::new(served.health.clone()).watch(asked(""))).await;
    let mut watched = watched.unwrap().into_inner();
    soon(watched.message()).await.unwrap();
    served.cancel.cancel();
    let status = soon(watched.message()).await.unwrap().unwrap().status();
    assert_eq!(status, ServingStatus::NotServing);

    stream.send(answer).await;
    stream.next().await.unwrap().unwrap();
    stream.send(end).await;
    stream.next().await.unwrap().unwrap();
    drop(stream);
    soon(&mut served.done).await.unwrap().unwrap();
}

#[tokio::test]
async fn shutdown_does_not_wait_for_ever() {
    let options = Options { drain_timeout_ms: 1, ..Options::default() };
    let mut served = Served::start(options, &router_over(&POOL)).await;
    let stream = served.stream().await;
    served.cancel.cancel();
    soon(&mut served.done).await.unwrap().unwrap();
    drop(stream);
}
