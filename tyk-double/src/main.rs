//! The stand-in as a program, for the image that the cluster scenarios run: `tyk-double [--NAME VALUE]…`, each also as an
//! environment variable `TYK_DOUBLE_NAME`.

use std::{io::Write as _, net::SocketAddr, process::ExitCode, time::Duration};

use routewright_tyk_double::{Double, Fault, Running, Switches};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

const HELP: &str = "\
tyk-double: a stand-in for Tyk, for tests
  --mode gateway|dashboard   which REST API (gateway)
  --listen ADDRESS           REST API and data plane (0.0.0.0:8080)
  --data ADDRESS             the data plane at a place of its own
  --tls ADDRESS              the data plane over TLS, with certificates of the store
  --control ADDRESS          counters and faults, for tests: nobody is asked for a secret here
  --secret TEXT              what callers must send (secret)
  --org ID                   organisation of the Dashboard's user (org1)
  --switches on|off          custom domains, strict routes, prefix and suffix matching (on)
  --websockets on|off        upgrades reach the backend (on)
  --duplicate-slugs on|off   the Dashboard takes a listen path twice (on)
  --tick MS                  distance of reloads (1000)
  --load-cost US             microseconds that a load takes per API (0)
  --latency MS               time that each call takes (0)
";

/// Value of a flag, or of its variable.
fn value(name: &str, words: &[String]) -> Option<String> {
    let flag = format!("--{name}");
    let at = words.iter().position(|word| *word == flag);
    at.and_then(|at| words.get(at + 1).cloned()).or_else(|| {
        let variable = format!("TYK_DOUBLE_{}", name.to_uppercase().replace('-', "_"));
        std::env::var(variable).ok().filter(|value| !value.is_empty())
    })
}

fn address(name: &str, words: &[String]) -> Result<Option<SocketAddr>, String> {
    let Some(text) = value(name, words) else {
        return Ok(None);
    };
    let parsed = text
        .parse()
        .map_err(|_| format!("--{name} {text}: an address such as 0.0.0.0:8080 is needed"))?;
    Ok(Some(parsed))
}

fn number(name: &str, otherwise: u64, words: &[String]) -> Result<u64, String> {
    match value(name, words) {
        None => Ok(otherwise),
        Some(text) => text
            .parse()
            .map_err(|_| format!("--{name} {text}: a number is needed")),
    }
}

fn on(name: &str, words: &[String]) -> Result<bool, String> {
    match value(name, words).as_deref() {
        None | Some("on" | "true") => Ok(true),
        Some("off" | "false") => Ok(false),
        Some(text) => Err(format!("--{name} {text}: on or off is needed")),
    }
}

fn double(words: &[String]) -> Result<Double, String> {
    let known: Vec<&str> = HELP
        .split_whitespace()
        .filter(|word| word.starts_with("--"))
        .collect();
    if let Some(word) = words
        .iter()
        .find(|word| word.starts_with("--") && !known.contains(&word.as_str()))
    {
        return Err(format!("{word} is not known\n{HELP}"));
    }
    let mut double = match value("mode", words).as_deref() {
        None | Some("gateway") => Double::gateway(),
        Some("dashboard") => Double::dashboard(),
        Some(text) => return Err(format!("--mode {text}: gateway or dashboard is needed")),
    };
    double = double
        .secret(value("secret", words).unwrap_or_else(|| "secret".to_owned()))
        .org(value("org", words).unwrap_or_else(|| "org1".to_owned()))
        .listen(address("listen", words)?.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 8080))))
        .duplicate_slugs(on("duplicate-slugs", words)?)
        .reload_tick(Duration::from_millis(number("tick", 1000, words)?))
        .load_cost(Duration::from_micros(number("load-cost", 0, words)?))
        .latency(Duration::from_millis(number("latency", 0, words)?))
        .switches(Switches {
            websockets: on("websockets", words)?,
            ..if on("switches", words)? {
                Switches::ON
            } else {
                Switches::OFF
            }
        })
        .log(true);
    if let Some(address) = address("data", words)? {
        double = double.data_listen(address);
    }
    if let Some(address) = address("tls", words)? {
        double = double.tls_listen(address);
    }
    Ok(double)
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        say(HELP);
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(&words)),
        Err(error) => Err(error.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "tyk-double: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run(words: &[String]) -> Result<(), String> {
    let running = double(words)?.start().await.map_err(|error| error.to_string())?;
    let control = match address("control", words)? {
        Some(address) => Some(
            TcpListener::bind(address)
                .await
                .map_err(|error| error.to_string())?,
        ),
        None => None,
    };
    say(&format!("ready: {:?} at {}", running.mode(), running.url()));
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|error| error.to_string())?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
        () = controlled(control, &running) => {}
    }
    Ok(())
}

/// The control port: `GET /counts`, `GET /requests`, `POST /faults?method=&prefix=&skip=&times=&wrong=&value=`,
/// `DELETE /faults`, `POST /lose-files`, `POST /restart`.
async fn controlled(listener: Option<TcpListener>, running: &Running) {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let handled = tokio::time::timeout(Duration::from_secs(10), command(stream, running));
            let _ = handled.await;
        }
    }
}

async fn command(stream: TcpStream, running: &Running) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.take(64 * 1024));
    let mut first = String::new();
    reader.read_line(&mut first).await?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            break;
        }
    }
    let mut words = first.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (status, body) = match (method, path) {
        ("GET", "/counts") => ("200 OK", running.summary().to_string()),
        ("GET", "/requests") => {
            let lines: Vec<String> = running
                .requests()
                .into_iter()
                .map(|one| format!("{} {} {}", one.method, one.path, one.status.unwrap_or(0)))
                .collect();
            ("200 OK", lines.join("\n"))
        }
        ("POST", "/faults") => match fault(query) {
            Some(fault) => {
                running.inject(fault);
                ("200 OK", String::new())
            }
            None => (
                "400 Bad Request",
                "wrong=status|drop-before|drop-after|hang|garbage|slow".to_owned(),
            ),
        },
        ("DELETE", "/faults") => {
            running.clear_faults();
            ("200 OK", String::new())
        }
        ("POST", "/lose-files") => {
            running.lose_files();
            ("200 OK", String::new())
        }
        ("POST", "/restart") => {
            running.restart();
            ("200 OK", String::new())
        }
        _ => ("404 Not Found", String::new()),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}\n",
        body.len() + 1
    );
    reader
        .into_inner()
        .into_inner()
        .write_all(answer.as_bytes())
        .await
}

fn fault(query: &str) -> Option<Fault> {
    let given: std::collections::BTreeMap<String, String> =
        form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let word = |name: &str| given.get(name).map(String::as_str).unwrap_or_default();
    let count = |name: &str, otherwise: usize| word(name).parse().unwrap_or(otherwise);
    let fault = Fault::on(word("method"), word("prefix"))
        .skip(count("skip", 0))
        .times(count("times", 1));
    let fault = match word("wrong") {
        "status" => fault.status(u16::try_from(count("value", 500)).ok()?, "a fault of the test"),
        "drop-before" => fault.drop_before(),
        "drop-after" => fault.drop_after(),
        "hang" => fault.hang(),
        "garbage" => fault.garbage(),
        "slow" => fault.slow(Duration::from_millis(u64::try_from(count("value", 1000)).ok()?)),
        _ => return None,
    };
    Some(fault)
}
