//! Fuzzing of decode, model and translation: manifests of the stories are mutated, with the structure of Kubernetes objects in
//! mind and sometimes byte by byte, and the whole answer is checked.
//!
//! `FUZZ_SECONDS=3600 cargo test -p routewright --test fuzz fuzz` runs longer (default: 5 seconds), `FUZZ_SEED=…` from another
//! seed. A failure names the seed of its case; `FUZZ_CASE=…` runs that case alone and prints its input. What was found is kept
//! as a test below.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod check;

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::{Duration, Instant},
};

use check::check;
use routewright::{
    cli::translate::{
        answer_for,
        input::{Source, objects},
    },
    tyk::{Settings, objects::text::TOKENS},
};
use serde_json::{Value, json};

/// SplitMix64: small, seedable, the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Every object of the stories and samples, to start from.
fn corpus() -> Vec<Value> {
    fn walk(folder: &Path, found: &mut Vec<Value>) {
        let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "yaml" || e == "json") {
                let source = Source {
                    name: "corpus".to_owned(),
                    text: fs::read_to_string(&path).unwrap(),
                };
                found.extend(objects(&source).0.into_iter().map(|one| one.value));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    walk(&root.join("tests/translate/stories"), &mut found);
    walk(&root.join("../samples"), &mut found);
    assert!(found.len() > 80, "only {} objects", found.len());
    found
}

/// What the platform owns and a Service, so that routes are judged and not only named as missing.
fn platform() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/translate/stories/01-simple");
    ["platform.yaml", "shop.yaml"]
        .into_iter()
        .flat_map(|name| {
            let source = Source {
                name: name.to_owned(),
                text: fs::read_to_string(folder.join(name)).unwrap(),
            };
            objects(&source).0
        })
        .map(|one| one.value)
        .collect()
}

/// Texts that have meant trouble somewhere.
fn text(random: &mut Random) -> String {
    const TEXTS: [&str; 56] = [
        "",
        " ",
        "/",
        "//",
        "/a",
        "/a/",
        "/a b",
        "/a%2Fb",
        "/a%zz",
        "/a?b=c",
        "/a#b",
        "/{id}",
        "/a$1",
        "/$",
        "/..",
        "/./a",
        "*",
        "*.example.com",
        "a.*.com",
        "EXAMPLE.com",
        "10.0.0.1",
        "::1",
        "example.com.",
        "a_b",
        "ä",
        "\u{0}",
        "\r\nX: y",
        "\u{7f}",
        "\u{202e}",
        "Host",
        "host",
        "x-a",
        "X-A",
        "a:b",
        "GET",
        "get",
        "CONNECT",
        "PathPrefix",
        "Exact",
        "ReplaceFullPath",
        "ReplacePrefixMatch",
        "URLRewrite",
        "RequestRedirect",
        "RequestHeaderModifier",
        "HTTP",
        "HTTPS",
        "TCP",
        "All",
        "Same",
        "Selector",
        "ClusterIP",
        "ExternalName",
        "None",
        "kubernetes.io/tls",
        "http",
        "{\"x-tyk-api-gateway\":{}}",
    ];
    match random.below(10) {
        0 => (*random.pick(&TOKENS)).to_owned() + "x",
        1 => format!("/{}y", random.pick(&TOKENS)),
        2 => random.pick(&TOKENS).to_uppercase(),
        3 => "x".repeat(1 << random.below(14)),
        4 => {
            // A token in two pieces, should anything join them.
            let token = *random.pick(&TOKENS);
            let at = 1 + random.below(token.len() - 1);
            let (a, b) = token.split_at(at);
            (if random.one_in(2) { a } else { b }).to_owned()
        }
        _ => (*random.pick(&TEXTS)).to_owned(),
    }
}

fn leaf(random: &mut Random) -> Value {
    match random.below(12) {
        0 => Value::Null,
        1 => json!(random.one_in(2)),
        2 => json!(*random.pick(&[
            -1_i64,
            0,
            1,
            80,
            443,
            65_535,
            65_536,
            1_000_000,
            1_000_001,
            i64::MAX,
            i64::MIN
        ])),
        3 => json!(0.5),
        4 => json!([]),
        5 => json!({}),
        _ => json!(text(random)),
    }
}

/// The value at a random place, the deeper ones more often.
fn somewhere<'a>(value: &'a mut Value, random: &mut Random) -> &'a mut Value {
    let inside = match value {
        Value::Object(map) => map.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if inside == 0 || random.one_in(6) {
        return value;
    }
    let at = random.below(inside);
    match value {
        Value::Object(map) => somewhere(map.values_mut().nth(at).unwrap(), random),
        Value::Array(items) => somewhere(&mut items[at], random),
        _ => unreachable!(),
    }
}

fn mutate(value: &mut Value, corpus: &[Value], random: &mut Random) {
    // Identity is mostly kept: an object without one ends the whole case.
    let target = match value.as_object_mut() {
        Some(map) if !random.one_in(50) => {
            let parts: Vec<String> = map
                .keys()
                .filter(|key| !["apiVersion", "kind", "metadata"].contains(&key.as_str()))
                .cloned()
                .collect();
            if parts.is_empty() {
                return;
            }
            map.get_mut(random.pick(&parts).as_str()).unwrap()
        }
        _ => value,
    };
    let place = somewhere(target, random);
    match random.below(9) {
        0 | 1 => *place = leaf(random),
        2 => match place {
            Value::Object(map) if !map.is_empty() => {
                let key = map.keys().nth(random.below(map.len())).unwrap().clone();
                map.remove(&key);
            }
            Value::Array(items) if !items.is_empty() => {
                items.remove(random.below(items.len()));
            }
            place => *place = Value::Null,
        },
        3 => match place {
            Value::Array(items) if !items.is_empty() && items.len() < 40 => {
                let item = items[random.below(items.len())].clone();
                let copies = if random.one_in(8) { 20 } else { 1 };
                items.extend(std::iter::repeat_n(item, copies));
            }
            place => {
                let whole = place.take();
                *place = json!([whole]);
            }
        },
        4 => {
            // A piece of another object, where it does not belong.
            let mut donor = random.pick(corpus).clone();
            *place = somewhere(&mut donor, random).take();
        }
        5 => {
            if let Value::Object(map) = place {
                const NAMES: [&str; 24] = [
                    "future",
                    "timeouts",
                    "retry",
                    "sessionPersistence",
                    "headers",
                    "queryParams",
                    "method",
                    "hostname",
                    "path",
                    "add",
                    "set",
                    "remove",
                    "filters",
                    "weight",
                    "namespace",
                    "port",
                    "sectionName",
                    "type",
                    "value",
                    "statusCode",
                    "scheme",
                    "tags",
                    "org",
                    "env://x",
                ];
                map.insert((*random.pick(&NAMES)).to_owned(), leaf(random));
            } else {
                *place = leaf(random);
            }
        }
        6 => match place {
            Value::String(old) => {
                let new = text(random);
                *old = if random.one_in(2) {
                    format!("{old}{new}")
                } else {
                    format!("{new}{old}")
                };
            }
            place => *place = leaf(random),
        },
        7 => {
            if let Value::Array(items) = place
                && items.len() > 1
            {
                let (a, b) = (random.below(items.len()), random.below(items.len()));
                items.swap(a, b);
            }
        }
        _ => {
            if let Value::Object(map) = place
                && map.len() > 1
            {
                // Two fields change their values.
                let keys: Vec<String> = map.keys().cloned().collect();
                let (a, b) = (random.pick(&keys).clone(), random.pick(&keys).clone());
                let (x, y) = (map[&a].clone(), map[&b].clone());
                map.insert(a, y);
                map.insert(b, x);
            }
        }
    }
}

/// The input of a case: what the platform owns, some objects of the corpus, and mutations of all of it.
fn case(seed: u64, corpus: &[Value], platform: &[Value]) -> Vec<Source> {
    let mut random = Random(seed);
    let mut values: Vec<Value> = platform.to_vec();
    let routes: Vec<&Value> = corpus.iter().filter(|one| one["kind"] == "HTTPRoute").collect();
    for _ in 0..1 + random.below(6) {
        let added = if random.one_in(2) {
            *random.pick(&routes)
        } else {
            random.pick(corpus)
        };
        values.push(added.clone());
    }
    for _ in 0..1 + random.below(6) {
        // Mostly the objects that were added, sometimes the platform's.
        let from = if random.one_in(6) { 0 } else { platform.len() };
        let at = from + random.below(values.len() - from);
        mutate(&mut values[at], corpus, &mut random);
    }
    let mut text = String::new();
    if random.one_in(3) {
        text = json!({"apiVersion": "v1", "kind": "List", "items": values}).to_string();
    } else {
        for value in &values {
            text.push_str("---\n");
            text.push_str(&serde_saphyr::to_string(value).unwrap());
        }
    }
    if random.one_in(10) {
        let mut bytes = text.into_bytes();
        for _ in 0..1 + random.below(6) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, *random.pick(b"{}[]:,-&*!|>'\"%@`#\n\t \0")),
                _ => {
                    let end = (at + random.below(200)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    let to = random.below(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
        }
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    vec![Source {
        name: "fuzz.yaml".to_owned(),
        text,
    }]
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

#[test]
fn fuzz() {
    let (corpus, platform) = (corpus(), platform());
    if let Some(seed) = number("FUZZ_CASE") {
        let sources = case(seed, &corpus, &platform);
        eprintln!("{}", sources[0].text);
        return check(&sources, true);
    }
    let limit = Duration::from_secs(number("FUZZ_SECONDS").unwrap_or(5));
    let first = number("FUZZ_SEED").unwrap_or(0x5eed);
    let (begun, mut runs, mut served, mut findings) = (Instant::now(), 0_u64, 0_u64, Vec::new());
    let mut said = 0;
    // Findings are printed where they happen; the panic itself is expected here.
    std::panic::set_hook(Box::new(|_| {}));
    while begun.elapsed() < limit && findings.len() < 20 {
        let seed = Random(first.wrapping_add(runs)).next();
        let sources = case(seed, &corpus, &platform);
        let result = catch_unwind(AssertUnwindSafe(|| {
            check(&sources, runs.is_multiple_of(8));
            answer_for(&sources, &Settings::default()).is_ok_and(|answer| !answer.apis.is_empty())
        }));
        match result {
            Ok(some) => served += u64::from(some),
            Err(panic) => {
                let said = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                    .unwrap_or_default();
                let short: String = said.chars().take(2000).collect();
                eprintln!("FUZZ_CASE={seed}: {short}");
                findings.push(seed);
            }
        }
        runs += 1;
        // A long run that is stopped has told how far it came.
        let minutes = begun.elapsed().as_secs() / 60;
        if minutes > said {
            said = minutes;
            eprintln!(
                "{runs} cases in {minutes} min, {served} of them with APIs, {} findings",
                findings.len()
            );
        }
    }
    drop(std::panic::take_hook());
    eprintln!(
        "{runs} cases in {} s, {served} of them with APIs, {} findings",
        begun.elapsed().as_secs(),
        findings.len()
    );
    assert!(findings.is_empty(), "run each with FUZZ_CASE=…: {findings:?}");
    assert!(
        runs < 50 || served * 20 > runs,
        "only {served} of {runs} cases came to an API: the mutations are too wild"
    );
}
