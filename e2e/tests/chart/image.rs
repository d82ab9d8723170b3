//! The Dockerfile makes the image that the test cluster runs: the same program at the same place, user, ports and
//! entrypoint. Neither Docker nor a cluster is needed.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;

use routewright_e2e::cluster::repository;
use routewright_e2e::{image, sh};
use serde_json::{Value, json};

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// Instructions of the last stage as (name, arguments), continued lines joined.
fn last_stage(dockerfile: &str) -> Vec<(String, String)> {
    let joined = dockerfile.replace("\\\n", " ");
    let all: Vec<(String, String)> = joined
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, rest)| (name.to_owned(), rest.trim().to_owned()))
        .collect();
    let last = all.iter().rposition(|(name, _)| name == "FROM").unwrap();
    all[last..].to_vec()
}

fn only<'a>(stage: &'a [(String, String)], name: &str) -> &'a str {
    let mut found = stage
        .iter()
        .filter(|(n, _)| n == name)
        .map(|(_, rest)| rest.as_str());
    let first = found.next().unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(found.next(), None, "{name} twice");
    first
}

/// Every blob of an OCI archive that is JSON, and the files of its layer.
fn content(archive: &std::path::Path) -> (Vec<Value>, BTreeSet<String>) {
    let (mut documents, mut files) = (Vec::new(), BTreeSet::new());
    let mut tar = tar::Archive::new(fs::File::open(archive).unwrap());
    for entry in tar.entries().unwrap() {
        let mut bytes = Vec::new();
        entry.unwrap().read_to_end(&mut bytes).unwrap();
        if let Ok(document) = serde_json::from_slice(&bytes) {
            documents.push(document);
            continue;
        }
        for file in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let file = file.unwrap();
            if file.header().entry_type().is_file() {
                files.insert(format!("/{}", file.path().unwrap().display()));
            }
        }
    }
    (documents, files)
}

/// What the base image brings and the archive therefore makes itself, besides the shared libraries of the program.
const BASE: [&str; 4] = [
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/ssl/certs/ca-certificates.crt",
];

#[test]
fn the_dockerfile_makes_the_image_that_tests_run() {
    // Given the archive, made of a program without shared libraries
    let folder = std::env::temp_dir().join(format!("routewright-dockerfile-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("program"), "#!/no/such\n").unwrap();
    image::of_operator(&folder.join("program"), "example.test/a:1", &folder.join("a.tar")).unwrap();
    let (documents, mut files) = content(&folder.join("a.tar"));
    fs::remove_dir_all(&folder).unwrap();
    let config = documents
        .iter()
        .find_map(|d| d.get("config").filter(|c| c.get("Entrypoint").is_some()))
        .unwrap();
    // When the base image's share is taken off
    for file in BASE {
        assert!(files.remove(file), "{file} is not in the archive: {files:?}");
    }
    // Then what is left is what the Dockerfile copies
    let stage = last_stage(&read("Dockerfile"));
    let copied: BTreeSet<String> = stage
        .iter()
        .filter(|(name, _)| name == "COPY" || name == "ADD")
        .map(|(_, rest)| rest.split_whitespace().last().unwrap().to_owned())
        .collect();
    assert_eq!(copied, files);
    // And user, ports, folder and entrypoint are the same
    assert_eq!(json!(only(&stage, "USER")), config["User"]);
    assert_eq!(json!(only(&stage, "WORKDIR")), config["WorkingDir"]);
    let ports: BTreeSet<String> = only(&stage, "EXPOSE")
        .split(' ')
        .map(|p| format!("{p}/tcp"))
        .collect();
    let exposed: BTreeSet<String> = config["ExposedPorts"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(ports, exposed);
    let entrypoint: Value = serde_json::from_str(only(&stage, "ENTRYPOINT")).unwrap();
    assert_eq!(entrypoint, config["Entrypoint"]);
    // And the base has neither shell nor root
    let base = only(&stage, "FROM");
    assert!(
        base.contains("/distroless/") && base.ends_with(":nonroot"),
        "{base}"
    );
    assert!(!stage.iter().any(|(name, _)| name == "RUN"));
}

#[test]
fn the_build_has_a_compiler_that_is_new_enough_and_every_member() {
    let (dockerfile, manifest) = (read("Dockerfile"), read("Cargo.toml"));
    let version = |text: &str, before: &str| -> Vec<u32> {
        let (_, rest) = text.split_once(before).unwrap();
        let digits: String = rest
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        digits.split('.').map(|n| n.parse().unwrap()).collect()
    };
    assert!(version(&dockerfile, "FROM rust:") >= version(&manifest, "rust-version = \""));
    // Given the members of the workspace, then each comes into the build
    let let_in = read(".dockerignore");
    let (_, members) = manifest.split_once("members = [").unwrap();
    // And what comes in is a whole workspace, by the locked versions
    let context = std::env::temp_dir().join(format!("routewright-context-{}", std::process::id()));
    fs::create_dir_all(&context).unwrap();
    for name in let_in.lines().filter_map(|line| line.strip_prefix('!')) {
        let from = repository().join(name);
        sh::run(sh::command(
            "cp",
            ["-r".as_ref(), from.as_os_str(), context.as_os_str()],
        ))
        .unwrap();
    }
    let words = [
        "metadata",
        "--locked",
        "--offline",
        "--no-deps",
        "--format-version",
        "1",
    ];
    let mut c = sh::command("cargo", words);
    c.current_dir(&context);
    let metadata: Value = serde_json::from_str(&sh::run(c).unwrap()).unwrap();
    fs::remove_dir_all(&context).unwrap();
    let programs = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|p| p["targets"].as_array().unwrap());
    assert!(
        programs
            .into_iter()
            .any(|t| t["name"] == "routewright" && t["kind"] == json!(["bin"]))
    );
    for member in members
        .split(']')
        .next()
        .unwrap()
        .split(',')
        .map(|m| m.trim().trim_matches('"'))
    {
        assert!(
            let_in.lines().any(|line| line == format!("!{member}")),
            "{member}"
        );
    }
}

#[test]
fn a_release_is_built_for_both_platforms_and_signed() {
    let text = read(".github/workflows/release.yaml");
    let workflow: Value = serde_saphyr::from_str(&text).unwrap();
    let platforms: Vec<&Value> = workflow["jobs"]["image"]["strategy"]["matrix"]["include"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["platform"])
        .collect();
    assert_eq!(platforms, [&json!("linux/amd64"), &json!("linux/arm64")]);
    for needed in [
        "sbom: true",
        "provenance: mode=max",
        "cosign sign",
        "cosign attest",
        "helm push",
    ] {
        assert!(text.contains(needed), "{needed}");
    }
    // Nothing is built for a commit that has not passed the gates
    assert_eq!(workflow["jobs"]["image"]["needs"], json!(["version", "gates"]));
    assert!(text.contains("--workflow ci.yaml") && text.contains("--status success"));
    // Advisories are looked at without a change too
    let advisories: Value = serde_saphyr::from_str(&read(".github/workflows/advisories.yaml")).unwrap();
    assert!(
        advisories["on"]["schedule"][0]["cron"].is_string(),
        "{advisories}"
    );
    // Every action of every workflow is a commit, not a tag that can be moved.
    let workflows =
        ["release", "ci", "advisories"].map(|name| read(&format!(".github/workflows/{name}.yaml")));
    for used in workflows
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uses: "))
    {
        let (_, pin) = used.split(' ').next().unwrap().split_once('@').unwrap();
        assert!(
            pin.len() == 40 && pin.chars().all(|c| c.is_ascii_hexdigit()),
            "{used}"
        );
    }
    // The right to push is given to the jobs that push, the right to sign to the one that signs.
    assert_eq!(workflow["permissions"], json!({"contents": "read"}));
    assert_eq!(workflow["jobs"]["publish"]["permissions"]["id-token"], "write");
    // And the version that it looks for is in all three places
    let chart: Value = serde_saphyr::from_str(&read("charts/routewright/Chart.yaml")).unwrap();
    let own = env!("CARGO_PKG_VERSION");
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&json!(own), &json!(own))
    );
}
