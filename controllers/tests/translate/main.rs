//! `routewright translate` on realistic manifests: each folder in `stories` tells one, and its `expected.txt` holds what the
//! program prints, tables and documents, what it says on standard error, and its exit code.
//! `UPDATE_GOLDEN=1 cargo test -p routewright --test translate` writes them anew.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use routewright::cli::translate::{Output, answer_for, input::Source, render};
use routewright::tyk::Settings;
use serde_json::Value;
use sha2::{Digest, Sha256};

fn stories() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/translate/stories");
    let mut found: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    found.sort();
    found
}

fn story(name: &str) -> PathBuf {
    stories()
        .into_iter()
        .find(|path| path.file_name().unwrap().to_string_lossy().contains(name))
        .unwrap()
}

/// A pair of certificate and key for the marks in a story, so that no private key stands in the repository.
struct Pair {
    certificate: String,
    key: String,
    fingerprint: String,
}

impl Pair {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["shop.example.com".to_owned()]).unwrap();
        let one_line = |pem: String| pem.replace('\n', "\\n");
        let fingerprint = Sha256::digest(made.cert.der())
            .iter()
            .fold(String::new(), |mut text, byte| {
                write!(text, "{byte:02x}").unwrap();
                text
            });
        Self {
            certificate: one_line(made.cert.pem()),
            key: one_line(made.signing_key.serialize_pem()),
            fingerprint,
        }
    }
}

fn sources(story: &Path, pair: &Pair) -> Vec<Source> {
    let mut files: Vec<PathBuf> = fs::read_dir(story)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "yaml" || end == "json"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| Source {
            name: path.file_name().unwrap().to_string_lossy().into_owned(),
            text: fs::read_to_string(path)
                .unwrap()
                .replace("@CERTIFICATE@", &pair.certificate)
                .replace("@KEY@", &pair.key),
        })
        .collect()
}

/// What a story comes to.
fn told(sources: &[Source], pair: &Pair) -> String {
    let mut text = String::new();
    match answer_for(sources, &Settings::default()) {
        Err(errors) => {
            text.push_str("exit code 2\n\n=== standard error\n");
            errors.iter().for_each(|error| writeln!(text, "{error}").unwrap());
        }
        Ok(answer) => {
            writeln!(
                text,
                "exit code {}\n\n=== standard error",
                u8::from(answer.rejected)
            )
            .unwrap();
            for line in answer.notes.iter().chain(&answer.missing) {
                writeln!(text, "{line}").unwrap();
            }
            write!(text, "\n=== table\n{}", render(&answer, Output::Table).unwrap()).unwrap();
            write!(text, "\n=== yaml\n{}", render(&answer, Output::Yaml).unwrap()).unwrap();
        }
    }
    text.replace(&pair.fingerprint, "<fingerprint>")
}

#[test]
fn every_story_comes_to_what_is_written() {
    let stories = stories();
    assert!(stories.len() >= 12, "only {} stories", stories.len());
    let pair = Pair::new();
    let mut different = Vec::new();
    for story in stories {
        let told = told(&sources(&story, &pair), &pair);
        let file = story.join("expected.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &told).unwrap();
        } else if fs::read_to_string(&file).unwrap_or_default() != told {
            different.push(format!("--- {}\n{told}", story.display()));
        }
    }
    assert!(
        different.is_empty(),
        "UPDATE_GOLDEN=1 writes these anew; they are different:\n{}",
        different.join("\n")
    );
}

#[test]
fn the_how_to_shows_real_output() {
    const PAGE: &str = "docs/src/how-to/translate.md";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
    let page = fs::read_to_string(&file).unwrap();
    let pair = Pair::new();
    let mut written = String::new();
    let mut rest = page.as_str();
    let mut shown = 0;
    // Given each block that a mark names a story for
    while let Some((before, after)) = rest.split_once("<!-- translate:") {
        let (name, after) = after.split_once(" -->\n```\n").unwrap();
        let (_, after) = after.split_once("```\n").unwrap();
        let told = told(&sources(&story(name), &pair), &pair);
        let (_, table) = told.split_once("=== table\n").unwrap();
        let (table, _) = table.split_once("\n=== yaml").unwrap();
        write!(written, "{before}<!-- translate:{name} -->\n```\n{table}```\n").unwrap();
        rest = after;
        shown += 1;
    }
    written.push_str(rest);
    // Then it is what the program prints
    assert!(shown > 1);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&file, &written).unwrap();
    } else {
        assert!(
            page == written,
            "{PAGE} is out of date: UPDATE_GOLDEN=1 writes it anew"
        );
    }
}

#[test]
fn no_story_shows_a_secret() {
    let pair = Pair::new();
    for story in stories() {
        let expected = told(&sources(&story, &pair), &pair);
        for secret in ["not-shown", "bm90LXNob3du", "PRIVATE KEY", "$secret_env.token"] {
            assert!(!expected.contains(secret), "{}: {secret}", story.display());
        }
    }
}

#[test]
fn the_order_of_files_and_documents_changes_nothing() {
    let pair = Pair::new();
    // What stands twice is told with its place, and the later one counts: there the order matters.
    for story in stories()
        .into_iter()
        .filter(|path| !path.ends_with("17-foreign-and-unhandled"))
    {
        let forward = sources(&story, &pair);
        let Ok(expected) = answer_for(&forward, &Settings::default()) else {
            continue;
        };
        let mut backward = forward;
        backward.reverse();
        for source in &mut backward {
            let mut documents: Vec<&str> = source.text.split("\n---\n").collect();
            documents.reverse();
            source.text = documents.join("\n---\n");
        }
        let answer = answer_for(&backward, &Settings::default()).unwrap();
        for output in [Output::Yaml, Output::Json, Output::Table] {
            assert!(
                render(&answer, output).unwrap() == render(&expected, output).unwrap(),
                "{}",
                story.display()
            );
        }
    }
}

/// Runs the program: exit code, standard output, standard error.
fn program(words: &[&str], input: Option<&str>) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_routewright"))
        .args(words)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let text = input.unwrap_or_default().to_owned();
    let writer = std::thread::spawn(move || drop(pipe.write_all(text.as_bytes())));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

#[test]
fn the_program_reads_folders_files_and_standard_input_alike() {
    let folder = story("simple");
    let shown = folder.display().to_string();
    let (code, by_folder, errors) = program(&["translate", "-f", &shown], None);
    assert_eq!((code, errors.as_str()), (0, ""));
    let file = |name: &str| folder.join(name).display().to_string();
    let (code, by_file, _) = program(
        &[
            "translate",
            "-f",
            &file("shop.yaml"),
            "--filename",
            &file("platform.yaml"),
            "-o",
            "yaml",
        ],
        None,
    );
    assert_eq!((code, &by_file), (0, &by_folder));
    let both = ["platform.yaml", "shop.yaml"]
        .map(|name| fs::read_to_string(file(name)).unwrap())
        .join("\n---\n");
    let (code, by_pipe, _) = program(&["translate", "-f", "-"], Some(&both));
    assert_eq!((code, &by_pipe), (0, &by_folder));
    // And JSON says the same as YAML
    let (code, json, _) = program(&["translate", "-f", &shown, "-o", "json"], None);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (code, json),
        (0, serde_saphyr::from_str::<Value>(&by_folder).unwrap())
    );
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let of = |name: &str| {
        let folder = story(name).display().to_string();
        program(&["translate", "-o", "table", "-f", &folder], None)
    };
    // 0: nothing was rejected, an unresolved backend is only told
    assert_eq!(of("unresolved-backends").0, 0);
    // 1: a rule was rejected, or a route not judged
    assert_eq!(of("partially-invalid").0, 1);
    let (code, _, errors) = of("no-class");
    assert_eq!(code, 1);
    assert!(
        errors.contains("Gateway infra/public is not in the input"),
        "{errors}"
    );
    // 2: unreadable, with nothing on standard output
    let (code, out, errors) = of("broken-input");
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(errors.contains("a.yaml, document 2, line "), "{errors}");
    let (code, _, errors) = program(&["translate", "-f", "/nonexistent/x.yaml"], None);
    assert_eq!(code, 2);
    assert!(
        errors.starts_with("routewright: /nonexistent/x.yaml: "),
        "{errors}"
    );
    let (code, _, errors) = program(&["translate", "-f", "-"], Some("# nothing\n---\n"));
    assert_eq!(
        (code, errors.as_str()),
        (2, "routewright: the input holds no Kubernetes object\n")
    );
    let (code, _, errors) = program(&["translate"], None);
    assert_eq!(code, 2);
    assert!(errors.contains("--filename"), "{errors}");
    let (code, help, _) = program(&["translate", "--help"], None);
    assert_eq!(code, 0);
    for words in [
        "Exit codes:",
        "0  nothing was rejected",
        "1  a route",
        "2  the input could not be read",
    ] {
        assert!(help.contains(words), "{words}: {help}");
    }
}

#[test]
fn another_controller_name_takes_other_classes() {
    let folder = story("foreign-and-unhandled").display().to_string();
    let (_, out, errors) = program(
        &[
            "translate",
            "-o",
            "table",
            "-f",
            &folder,
            "--tyk-controller-name",
            "example.com/gateway",
        ],
        None,
    );
    assert!(
        errors.contains("Gateway infra/public is left to the controller of its class"),
        "{errors}"
    );
    assert!(out.contains("infra/other"), "{out}");
}

#[test]
fn completions_know_the_commands() {
    for (shell, says) in [
        ("bash", "complete -F _routewright"),
        ("zsh", "#compdef routewright"),
        ("fish", "complete -c routewright"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let (code, script, _) = program(&["completions", shell], None);
        assert_eq!(code, 0);
        assert!(script.contains(says) && script.contains("translate"), "{shell}");
    }
}

#[test]
fn samples_come_to_a_route_with_authentication() {
    // given the samples of Gateway API on Tyk as they stand, and the Service of the gateways
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples/tyk");
    let mut sources: Vec<Source> = ["platform.yaml", "shop.yaml"]
        .map(|name| Source {
            name: name.to_owned(),
            text: fs::read_to_string(folder.join(name)).unwrap(),
        })
        .into();
    sources.push(Source {
        name: "service.yaml".to_owned(),
        text: "apiVersion: v1\nkind: Service\nmetadata: {name: gateway, namespace: tyk}\n\
               spec: {clusterIP: 10.0.0.7, ports: [{port: 8080}]}\n"
            .to_owned(),
    });
    let said = |sources: &[Source]| -> Value {
        let answer = answer_for(sources, &Settings::default()).unwrap();
        assert!(!answer.rejected, "{:?} {:?}", answer.notes, answer.missing);
        assert!(answer.missing.is_empty(), "{:?}", answer.missing);
        serde_json::from_str(&render(&answer, Output::Json).unwrap()).unwrap()
    };
    let document = |said: &Value| -> Value {
        let apis = said["apis"].as_array().unwrap();
        assert_eq!(apis.len(), 1, "{said}");
        apis[0]["document"].clone()
    };
    // when they are translated without and with the definition
    let open = document(&said(&sources));
    sources.push(Source {
        name: "authentication.yaml".to_owned(),
        text: fs::read_to_string(folder.join("authentication.yaml")).unwrap(),
    });
    let closed = document(&said(&sources));
    // then the same API is open, and then asks for a key and has the limit
    let id = "/x-tyk-api-gateway/info/id";
    assert_eq!(open.pointer(id), closed.pointer(id));
    let authentication = "/x-tyk-api-gateway/server/authentication";
    assert_eq!(open.pointer(authentication), None);
    assert_eq!(
        closed.pointer(&format!("{authentication}/securitySchemes/apiKey/enabled")),
        Some(&Value::Bool(true))
    );
    assert_eq!(closed["security"][0]["apiKey"], serde_json::json!([]));
    assert_eq!(
        closed.pointer("/x-tyk-api-gateway/upstream/rateLimit/rate"),
        Some(&10.into())
    );
    // and the page shows the file as it is
    let page = fs::read_to_string(folder.join("../../docs/src/tyk/authentication.md")).unwrap();
    let file = fs::read_to_string(folder.join("authentication.yaml")).unwrap();
    let objects = &file[file.find("apiVersion").unwrap()..];
    assert!(
        page.contains(objects),
        "docs/src/tyk/authentication.md shows another definition than the sample"
    );
}
