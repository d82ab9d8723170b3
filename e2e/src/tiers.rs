//! The tiers of tests: what belongs to each, the environment that it gets, and the counts at the end. The contract is
//! in docs/src/testing.md; what a test shows is told by the test.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::cluster::{SWITCH, repository};
use crate::error::{Error, IoContext, Result};
use crate::node;
use crate::programs::{self, Program};
use crate::sh::{self, say};
use crate::tools::{Part, Tools};

/// A tier of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Pure tests, and the tests of documents.
    Unit,
    /// Tests against the API server inside the test process.
    FakeApi,
    /// Histories of the simulator: the whole operator in simulated time.
    Sim,
    /// Scenarios on a real cluster, and the Garage client against a real Garage.
    Cluster,
}

impl Tier {
    /// All, from cheap to dear.
    pub const ALL: [Tier; 4] = [Tier::Unit, Tier::FakeApi, Tier::Sim, Tier::Cluster];

    /// Name on the command line and in the counts.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Unit => "unit",
            Tier::FakeApi => "fake-api",
            Tier::Sim => "sim",
            Tier::Cluster => "cluster",
        }
    }
}

/// What a command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Tiers, in the order in which they run.
    pub tiers: Vec<Tier>,
    /// Arguments of the test programs, e.g. a part of a test's name.
    pub filter: Vec<String>,
}

impl Wanted {
    /// Leading names of tiers, then arguments of the test programs. Nothing means every tier; arguments without a
    /// tier mean the scenarios.
    pub fn of(words: &[String]) -> Self {
        let tier = |word: &String| Tier::ALL.into_iter().find(|t| t.name() == word);
        let named: Vec<Tier> = words.iter().map_while(tier).collect();
        let filter: Vec<String> = words
            .iter()
            .skip(named.len())
            .filter(|w| *w != "--")
            .cloned()
            .collect();
        let tiers = match (named.is_empty(), filter.is_empty()) {
            (true, true) => Tier::ALL.to_vec(),
            (true, false) => vec![Tier::Cluster],
            _ => Tier::ALL.into_iter().filter(|t| named.contains(t)).collect(),
        };
        Self { tiers, filter }
    }
}

/// Counts of one tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Count {
    /// Adds a line of output when it is the summary of a test program.
    fn add(&mut self, line: &str) {
        let Some(summary) = line.strip_prefix("test result: ") else {
            return;
        };
        for part in summary.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(n)), Some(what)) = (words.next().map(str::parse::<usize>), words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += n,
                "failed" => self.failed += n,
                "ignored" => self.skipped += n,
                _ => {}
            }
        }
    }

    fn line(&self, tier: Tier) -> String {
        format!(
            "{}: {} passed, {} failed, {} skipped",
            tier.name(),
            self.passed,
            self.failed,
            self.skipped
        )
    }
}

/// Runs tiers and prints their counts. True when every one ran, passed at least one test and failed none.
///
/// # Errors
/// When Cargo cannot be started.
pub fn run(wanted: &Wanted) -> Result<bool> {
    let (mut lines, mut good) = (Vec::new(), true);
    for tier in &wanted.tiers {
        let begun = Instant::now();
        let line = match tests(*tier, &wanted.filter) {
            Ok(count) => {
                good &= count.passed > 0 && count.failed == 0;
                count.line(*tier)
            }
            Err(e) => {
                good = false;
                let why = e.to_string().replace('\n', " ");
                format!("{}: did not run: {why}", tier.name())
            }
        };
        say(format!("{line} ({} s)", begun.elapsed().as_secs()));
        lines.push(line);
    }
    let mut out = std::io::stdout().lock();
    for line in lines {
        // A closed pipe is the reader's decision.
        let _ = writeln!(out, "{line}");
    }
    Ok(good)
}

fn tests(tier: Tier, filter: &[String]) -> Result<Count> {
    let mut count = Count::default();
    let out = &mut std::io::stdout();
    match tier {
        Tier::Unit => {
            let units = ["--lib", "--bins"].map(str::to_owned);
            let pages = targets("crds/tests", |_| true)?;
            let of_controllers = targets("controllers/tests", pure)?;
            let built = programs::build(&[&units[..], &pages, &of_controllers].concat())?;
            run_programs(built.iter().filter(|p| of_unit(p)), filter, &[], &mut count)?;
            let mut documents = sh::command("cargo", ["test", "--doc", "--no-fail-fast"]);
            documents.args(programs::FEATURES).arg("--").args(filter);
            documents.current_dir(repository()).env_remove(SWITCH);
            say(sh::shown(&documents));
            counted(documents, &mut count, out)?;
        }
        Tier::FakeApi => {
            let of_controllers = targets("controllers/tests", |name| !pure(name) && !needs_programs(name))?;
            let of_framework = targets("framework/tests", |_| true)?;
            let built = programs::build(&[of_framework, of_controllers].concat())?;
            run_programs(built.iter().filter(|p| of_fake_api(p)), filter, &[], &mut count)?;
        }
        Tier::Sim => {
            let mut replay = sh::command("cargo", ["test", "--profile", "sim"]);
            replay.args(["-p", "routewright-sim", "--test", "replay"]);
            replay.current_dir(repository());
            say(sh::shown(&replay));
            counted(replay, &mut count, out)?;
            counted(simulator(filter), &mut count, out)?;
        }
        Tier::Cluster => {
            let garage = prepare()?.display().to_string();
            let environment = [(SWITCH, "1"), ("GARAGE_BIN", garage.as_str())];
            let (program, filter) = one_program(filter)?;
            let scenarios = targets("e2e/tests", |name| program.is_none_or(|one| one == name))?;
            let clients = targets("controllers/tests", |name| {
                program.is_none() && needs_programs(name)
            })?;
            let built = programs::build(&[scenarios, clients].concat())?;
            run_programs(
                built.iter().filter(|p| of_cluster(p)),
                filter,
                &environment,
                &mut count,
            )?;
        }
    }
    Ok(count)
}

/// Libraries, documents, and what is pure of the controllers.
fn of_unit(program: &Program) -> bool {
    let folder = program.folder.as_str();
    !program.integration || folder == "crds" || (folder == "controllers" && pure(&program.name))
}

/// What needs an API server inside of the process, and no program.
fn of_fake_api(program: &Program) -> bool {
    let of_controllers = !pure(&program.name) && !needs_programs(&program.name);
    match program.folder.as_str() {
        "framework" => program.integration,
        "controllers" => program.integration && of_controllers,
        _ => false,
    }
}

/// Scenarios, and clients before the real programs.
fn of_cluster(program: &Program) -> bool {
    match program.folder.as_str() {
        "e2e" => program.integration,
        "controllers" => program.integration && needs_programs(&program.name),
        _ => false,
    }
}

/// Runs test programs one after the other, whatever the end of each, and says how long each took.
fn run_programs<'a>(
    programs: impl Iterator<Item = &'a Program>,
    filter: &[String],
    environment: &[(&str, &str)],
    count: &mut Count,
) -> Result<()> {
    let mut ran = false;
    for program in programs {
        let (begun, shown) = (Instant::now(), program.shown());
        say(&shown);
        let command = program.command(filter, environment);
        if let Err(e) = counted(command, count, &mut std::io::stdout()) {
            say(e.to_string());
            count.failed += 1;
        }
        say(format!("{} s: {shown}", begun.elapsed().as_secs()));
        ran = true;
    }
    match ran {
        true => Ok(()),
        false => Err(Error::other("no test program belongs to it")),
    }
}

/// The simulator with these arguments. One history counts as one test.
pub fn simulator(words: &[String]) -> Command {
    let build = [
        "run",
        "--profile",
        "sim",
        "-p",
        "routewright-sim",
        "--bin",
        "sim",
        "--",
    ];
    let mut c = sh::command("cargo", build);
    c.args(words).current_dir(repository());
    say(sh::shown(&c));
    c
}

/// Makes sure that the cluster tier can run, and builds what is missing before the first test waits for it. Returns
/// the Garage program.
fn prepare() -> Result<std::path::PathBuf> {
    let var = |name| std::env::var(name).ok().filter(|v: &String| !v.is_empty());
    let mut parts = Part::ALL.to_vec();
    parts.retain(|p| !Part::PEERS.contains(p));
    if let Some(file) = var("E2E_KUBECONFIG") {
        fs::metadata(&file).at("read E2E_KUBECONFIG", &file)?;
    } else if var("E2E_CLUSTER").is_none_or(|c| c == "node") {
        node::possible()?;
    } else {
        for program in ["docker", "kind"] {
            if sh::which(program).is_none() {
                return Err(Error::Missing(format!(
                    "{program}, for E2E_CLUSTER=kind, where few scenarios can run; all can with E2E_CLUSTER=node as root on Linux"
                )));
            }
        }
        // Kubernetes itself stays for kubectl.
        parts.retain(|p| *p == Part::Kubernetes || !Part::NODE.contains(p));
    }
    let tools = Tools::open()?;
    for part in parts {
        tools.part(part)?;
    }
    tools.program(Part::Garage, "garage")
}

/// Test programs of the controllers that need neither an API server nor anything else.
fn pure(name: &str) -> bool {
    let of_tyk =
        name.starts_with("tyk_") && !matches!(name, "tyk_route" | "tyk_world") && !needs_programs(name);
    of_tyk || matches!(name, "docs" | "translate" | "fuzz")
}

/// Test programs of the controllers that ask a real Garage or a real Tyk Gateway.
fn needs_programs(name: &str) -> bool {
    matches!(name, "garage_real" | "gateway_contract")
}

/// The test program of `e2e/tests` that the first word names, and the words after it; else all words are parts of names.
fn one_program(words: &[String]) -> Result<(Option<&str>, &[String])> {
    let known = targets("e2e/tests", |_| true)?;
    Ok(match words.split_first() {
        Some((first, rest)) if known.contains(first) => (Some(first), rest),
        _ => (None, words),
    })
}

/// `--test NAME` for each of some test programs in a folder of the repository.
fn targets(folder: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let folder = repository().join(folder);
    let mut names: Vec<String> = fs::read_dir(&folder)
        .at("read", &folder)?
        .flatten()
        .map(|e| e.path())
        // A program is a file, or a folder with a main file.
        .filter(|p| p.extension().is_some_and(|e| e == "rs") || p.join("main.rs").exists())
        .filter_map(|p| p.file_stem().map(|n| n.to_string_lossy().into_owned()))
        .filter(|n| wanted(n))
        .collect();
    names.sort();
    Ok(names.into_iter().flat_map(|n| ["--test".to_owned(), n]).collect())
}

/// Runs a command whose output holds summaries of test programs; the output goes on to `out`.
fn counted(mut c: Command, count: &mut Count, out: &mut dyn std::io::Write) -> Result<()> {
    let line = sh::shown(&c);
    let program = Path::new(c.get_program()).to_path_buf();
    let mut child = c.stdout(Stdio::piped()).spawn().at("start", &program)?;
    let mut own = Count::default();
    if let Some(pipe) = child.stdout.take() {
        let (mut reader, mut bytes) = (BufReader::new(pipe), Vec::new());
        // Bytes, not text: a test may print anything.
        while reader.read_until(b'\n', &mut bytes).at("read", &program)? > 0 {
            own.add(String::from_utf8_lossy(&bytes).trim_end());
            let _ = out.write_all(&bytes);
            bytes.clear();
        }
    }
    let status = child.wait().at("wait for", &program)?;
    if !status.success() && own == Count::default() {
        return Err(Error::other(format!(
            "`{line}` ended before the first test ({status}); its message is above"
        )));
    }
    count.passed += own.passed;
    count.failed += own.failed;
    count.skipped += own.skipped;
    if !status.success() && own.failed == 0 {
        // Another one did not build, or died without a summary.
        say(format!(
            "a test program of `{line}` ended without counts ({status})"
        ));
        count.failed += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(text: &str) -> Wanted {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Wanted::of(&words)
    }

    #[test]
    fn tiers_come_first_and_names_of_tests_after_them() {
        let all = |tiers: &[Tier], filter: &[&str]| Wanted {
            tiers: tiers.to_vec(),
            filter: filter.iter().map(|f| (*f).to_owned()).collect(),
        };
        assert_eq!(wanted(""), all(&Tier::ALL, &[]));
        assert_eq!(
            wanted("cluster unit"),
            all(&[Tier::Unit, Tier::Cluster], &[]),
            "cheap ones first"
        );
        assert_eq!(
            wanted("a_page --exact"),
            all(&[Tier::Cluster], &["a_page", "--exact"])
        );
        assert_eq!(wanted("unit hostname"), all(&[Tier::Unit], &["hostname"]));
        assert_eq!(wanted("fake-api -- unit"), all(&[Tier::FakeApi], &["unit"]));
    }

    #[test]
    fn summaries_of_test_programs_are_summed_and_nothing_else() {
        let mut count = Count::default();
        count.add(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s",
        );
        count.add("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.5s");
        count.add("test the_result ... ok");
        count.add("  test result: ok. 100 passed; 0 failed; inside of a test's output");
        assert_eq!(count.line(Tier::Unit), "unit: 15 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn every_test_program_of_a_folder_belongs_to_one_tier() {
        let names = |wanted: &dyn Fn(&str) -> bool| {
            let found = targets("controllers/tests", wanted).unwrap();
            assert!(found.chunks(2).all(|pair| pair[0] == "--test"));
            let names = found.into_iter().filter(|word| word != "--test");
            names.collect::<Vec<String>>()
        };
        let unit = names(&pure);
        let fake = names(&|name| !pure(name) && !needs_programs(name));
        let cluster = names(&needs_programs);
        let has = |list: &[String], name: &str| list.iter().any(|n| n == name);
        assert!(has(&unit, "docs") && has(&unit, "tyk_translate"), "{unit:?}");
        // One is a folder, one of the folders is no program.
        assert!(
            has(&fake, "exposure") && has(&fake, "tyk_world") && !has(&fake, "support"),
            "{fake:?}"
        );
        assert!(has(&fake, "tyk_route") && !has(&unit, "tyk_route"), "{unit:?}");
        assert!(
            has(&cluster, "garage_real") && has(&cluster, "gateway_contract"),
            "{cluster:?}"
        );
        assert_eq!(unit.len() + fake.len() + cluster.len(), names(&|_| true).len());
    }

    #[test]
    fn the_name_of_a_program_is_that_program_and_any_other_word_a_part_of_a_name() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let given = words("traffic a_second");
        assert_eq!(one_program(&given).unwrap(), (Some("traffic"), &given[1..]));
        let given = words("a_second traffic");
        assert_eq!(one_program(&given).unwrap(), (None, &given[..]));
    }

    fn shell(script: &str) -> (Result<()>, Count) {
        let mut count = Count::default();
        // Into nothing: the run that this test is part of counts too.
        let outcome = counted(
            sh::command("sh", ["-c", script]),
            &mut count,
            &mut std::io::sink(),
        );
        (outcome, count)
    }

    #[test]
    fn a_program_that_ends_without_counts_is_a_failure() {
        // Given one program with counts and one that dies, then the death counts
        let (outcome, count) = shell("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'; exit 101");
        outcome.unwrap();
        assert_eq!((count.passed, count.failed), (2, 1));
        // Given a failure that was counted, then it is not counted twice
        let (outcome, count) = shell("echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored'; exit 101");
        outcome.unwrap();
        assert_eq!((count.passed, count.failed), (2, 1));
        // Given nothing but a failure, then the tier did not run
        assert!(shell("exit 101").0.is_err());
    }
}
