//! Logs: text or JSON on standard error, one filter, changeable while running. Lines of a reconcile carry its trace.

use std::{
    fmt,
    io::IsTerminal as _,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    extract::{ConnectInfo, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use clap::ValueEnum;
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::LevelFilter,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format as Lines, Writer},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt,
};

use super::Failure;
use crate::telemetry::traces::{Traces, current_trace_id};

/// Form of the log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One object per line.
    Json,
}

/// The filter of the running process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Level {
    handle: reload::Handle<EnvFilter, Registry>,
    text: Arc<Mutex<String>>,
}

impl Level {
    /// The filter as it was given last.
    pub fn get(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs by this filter from now on.
    ///
    /// # Errors
    /// It is none; the old one stays.
    pub fn set(&self, text: &str) -> Result<(), String> {
        let text = text.trim();
        let filter = filter(text)?;
        self.handle.reload(filter).map_err(|error| error.to_string())?;
        text.clone_into(&mut self.text.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

/// kube says at level ERROR, once more, what each caller of a failed request says with the object's name.
const TWICE: &str = "kube_client::client::builder=off";

fn filter(level: &str) -> Result<EnvFilter, String> {
    let wrong = |why: String| {
        format!(
            "{level:?}: {why}; it is error, warn, info, debug or trace, or a filter such as info,kube_client=debug"
        )
    };
    if level.is_empty() {
        return Err(wrong("is empty".to_owned()));
    }
    // A lone word is taken for a target, and then nothing else is logged.
    let lone = |part: &&str| !part.contains(['=', '[']) && part.parse::<LevelFilter>().is_err();
    if let Some(word) = level.split(',').map(str::trim).find(lone) {
        return Err(wrong(format!("{word:?} is no level")));
    }
    let text = if level.contains("kube_client") {
        level.to_owned()
    } else {
        format!("{level},{TWICE}")
    };
    EnvFilter::try_new(text).map_err(|_| wrong("is no filter".to_owned()))
}

/// Starts logging and, if there are any, traces. `level` is a tracing filter: `info`, `debug`, `info,reconcile_kit=debug`.
///
/// # Errors
/// The level is none.
pub fn start(format: Format, level: &str, traces: Option<&Traces>) -> Result<Level, Failure> {
    let filter = filter(level).map_err(|why| Failure::usage(format!("--log-level {why}")))?;
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // A layer of its own for each form and with or without traces: what is off is not there.
    let lines = match (format, traces.is_some()) {
        (Format::Text, false) => lines.boxed(),
        (Format::Text, true) => lines.map_event_format(WithTrace).boxed(),
        // The list of spans has the innermost one too: said once.
        (Format::Json, false) => lines.json().flatten_event(true).with_current_span(false).boxed(),
        (Format::Json, true) => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .map_event_format(WithTrace)
            .boxed(),
    };
    let registry = tracing_subscriber::registry().with(lines.with_filter(filter));
    let started = match traces {
        None => registry.try_init(),
        Some(traces) => registry.with(traces.layer()).try_init(),
    };
    started.map_err(|error| Failure::other(format!("logging: {error}")))?;
    Ok(Level {
        handle,
        text: Arc::new(Mutex::new(level.trim().to_owned())),
    })
}

/// Lines with `trace_id` where there is one.
struct WithTrace<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithTrace<Lines<F>>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    Lines<F>: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(trace) = current_trace_id() else {
            return self.0.format_event(ctx, writer, event);
        };
        let mut line = String::new();
        self.0.format_event(ctx, Writer::new(&mut line), event)?;
        let line = line.trim_end_matches('\n');
        match line.strip_prefix('{') {
            Some(fields) => writeln!(writer, "{{\"trace_id\":\"{trace}\",{fields}"),
            None => writeln!(writer, "{line} trace_id={trace}"),
        }
    }
}

/// `GET` and `PUT /loglevel`, for callers on this machine only: through `kubectl port-forward`, which ends in the Pod's own
/// loopback, and never through the network.
pub fn router(level: Level) -> Router {
    Router::new()
        .route("/loglevel", get(tell).put(change))
        .with_state(level)
}

/// Longest filter that is taken.
const MAX_FILTER: usize = 1024;

fn elsewhere(peer: SocketAddr) -> Option<Response> {
    // Not all of 127.0.0.0/8: a mesh's sidecar hands over what comes from the network as 127.0.0.6.
    let peer = peer.ip().to_canonical();
    let near = peer == Ipv4Addr::LOCALHOST || peer == Ipv6Addr::LOCALHOST;
    (!near).then(|| {
        let text = "the log level is changed from the Pod itself only: use kubectl port-forward\n";
        (StatusCode::FORBIDDEN, text).into_response()
    })
}

async fn tell(State(level): State<Level>, ConnectInfo(peer): ConnectInfo<SocketAddr>) -> Response {
    elsewhere(peer).unwrap_or_else(|| format!("{}\n", level.get()).into_response())
}

async fn change(
    State(level): State<Level>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    body: String,
) -> Response {
    if let Some(refused) = elsewhere(peer) {
        return refused;
    }
    let set = if body.len() > MAX_FILTER {
        Err(format!("is longer than {MAX_FILTER} bytes"))
    } else {
        level.set(&body)
    };
    match set {
        Ok(()) => {
            let text = level.get();
            tracing::info!(level = %text, "log level");
            format!("{text}\n").into_response()
        }
        Err(why) => (StatusCode::BAD_REQUEST, format!("log level {why}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{
        body::{Body, to_bytes},
        http::Request,
    };
    use tower::ServiceExt as _;

    /// A level that nothing is logged by; the layer must live for as long as it is changed.
    fn level() -> (reload::Layer<EnvFilter, Registry>, Level) {
        let (layer, handle) = reload::Layer::new(filter("info").unwrap());
        let text = Arc::new(Mutex::new("info".to_owned()));
        (layer, Level { handle, text })
    }

    async fn ask(level: &Level, peer: &str, method: &str, body: &str) -> (u16, String) {
        let mut request = Request::builder()
            .method(method)
            .uri("/loglevel")
            .body(Body::from(body.to_owned()))
            .unwrap();
        let peer: SocketAddr = peer.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = router(level.clone()).oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), 1 << 16).await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn only_the_pod_itself_reads_and_changes_the_level() {
        let (_layer, level) = level();
        for peer in [
            "10.0.0.7:4000",
            "127.0.0.6:4000",
            "[2001:db8::1]:4000",
            "[::ffff:10.0.0.7]:4000",
        ] {
            for (method, body) in [("PUT", "debug"), ("GET", "")] {
                let (code, text) = ask(&level, peer, method, body).await;
                assert_eq!(code, 403, "{peer}");
                assert!(text.contains("port-forward"), "{text}");
            }
            assert_eq!(level.get(), "info", "{peer}");
        }
        for peer in ["127.0.0.1:4000", "[::1]:4000", "[::ffff:127.0.0.1]:4000"] {
            let (_layer, level) = self::level();
            assert_eq!(
                ask(&level, peer, "PUT", " debug\n").await,
                (200, "debug\n".to_owned())
            );
            assert_eq!(ask(&level, peer, "GET", "").await, (200, "debug\n".to_owned()));
        }
    }

    #[tokio::test]
    async fn what_is_no_filter_is_refused_and_nothing_changes() {
        let (_layer, level) = level();
        let long = format!("info,{}=debug", "a".repeat(MAX_FILTER));
        for (body, said) in [
            ("", "is empty"),
            ("chatty", "\"chatty\" is no level"),
            (long.as_str(), "longer than"),
        ] {
            let (code, text) = ask(&level, "127.0.0.1:1", "PUT", body).await;
            assert_eq!(code, 400);
            assert!(text.contains(said) && text.lines().count() == 1, "{text}");
            assert_eq!(level.get(), "info");
        }
    }
}
