//! `sim --seeds N --from S`: plays N histories, and tells each one that went wrong. `sim --seed S`: plays one and tells it
//! whole.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::expect_used)] // a program for the terminal

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Parser;
use routewright_sim::{
    history,
    play::{self, Verdict},
};

/// Plays histories of the simulated world.
#[derive(Parser)]
struct Arguments {
    /// Number of histories.
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// Seed of the first one.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Play this one alone and tell it whole.
    #[arg(long)]
    seed: Option<u64>,
    /// Histories at once.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Seconds that may be spent on shortening a bad history.
    #[arg(long, default_value_t = 60)]
    shorten: u64,
    /// End after this number of bad histories.
    #[arg(long, default_value_t = 5)]
    most: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        let history = history::write(seed);
        let verdict = play::play(&history);
        for line in &verdict.story {
            println!("{line}");
        }
        println!("{}", summary(&verdict));
        return code(verdict.violations.is_empty());
    }
    let begun = Instant::now();
    let (next, end) = (AtomicU64::new(arguments.from), arguments.from + arguments.seeds);
    let (bad, written) = (Mutex::new(Vec::new()), Mutex::new(BTreeMap::new()));
    let disturbed = Mutex::new(BTreeMap::new());
    let (played, simulated) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= end || bad.lock().expect("no panic holds it").len() >= arguments.most {
                        return;
                    }
                    let verdict = play::play(&history::write(seed));
                    played.fetch_add(1, Ordering::SeqCst);
                    simulated.fetch_add(verdict.simulated.as_secs(), Ordering::SeqCst);
                    let mut all = written.lock().expect("no panic holds it");
                    for (key, count) in &verdict.written {
                        *all.entry(key.clone()).or_insert(0) += count;
                    }
                    drop(all);
                    let mut all = disturbed.lock().expect("no panic holds it");
                    for (key, count) in &verdict.disturbed {
                        *all.entry(key.clone()).or_insert(0) += count;
                    }
                    drop(all);
                    if !verdict.violations.is_empty() {
                        println!("{}", summary(&verdict));
                        bad.lock().expect("no panic holds it").push(verdict);
                    }
                }
            });
        }
    });
    let bad = bad.into_inner().expect("no panic holds it");
    for verdict in &bad {
        let Some(found) = verdict.violations.first() else {
            continue;
        };
        if arguments.shorten == 0 {
            continue;
        }
        let until = Instant::now() + Duration::from_secs(arguments.shorten);
        let short = play::shorten(&history::write(verdict.seed), found.rule, until);
        println!("\nseed {}, shortened: {}", verdict.seed, found.rule);
        println!("{}", play::tell(&short));
        for line in play::play(&short).story {
            println!("    {line}");
        }
    }
    print_coverage(
        &written.into_inner().expect("no panic holds it"),
        &disturbed.into_inner().expect("no panic holds it"),
    );
    let (played, seconds) = (played.into_inner(), begun.elapsed().as_secs_f64());
    println!(
        "{played} histories in {seconds:.0} s ({:.2} a second), {:.0} hours simulated, {} with violations",
        played as f64 / seconds,
        simulated.into_inner() as f64 / 3_600.0,
        bad.len()
    );
    // The line by which a tier is counted.
    println!(
        "test result: {}. {} passed; {} failed; 0 ignored",
        if bad.is_empty() { "ok" } else { "FAILED" },
        played - bad.len() as u64,
        bad.len()
    );
    code(bad.is_empty())
}

/// Columns of the table of coverage.
const FAULTS: [&str; 9] = [
    "409",
    "429",
    "403",
    "5xx",
    "broken",
    "answer lost",
    "late",
    "answer late",
    "killed",
];

/// How often each kind of write was done, and which faults it met.
fn print_coverage(
    written: &BTreeMap<(String, String), u64>,
    disturbed: &BTreeMap<(String, &'static str), u64>,
) {
    let mut rows: BTreeMap<&str, (u64, Vec<&str>)> = BTreeMap::new();
    for ((manager, what), count) in written {
        let row = rows.entry(what).or_default();
        row.0 += count;
        row.1.push(manager);
    }
    for (what, _) in disturbed.keys() {
        rows.entry(what).or_default();
    }
    print!("{:<34} {:>8}", "request", "done");
    for fault in FAULTS {
        print!(" {fault:>11}");
    }
    println!("  field managers");
    for (what, (done, managers)) in rows {
        print!("{what:<34} {done:>8}");
        for fault in FAULTS {
            let met = disturbed.get(&(what.to_owned(), fault)).copied().unwrap_or(0);
            print!(" {met:>11}");
        }
        println!("  {}", managers.join(" "));
    }
}

fn summary(verdict: &Verdict) -> String {
    let mut text = format!(
        "seed {}: {} s simulated, {} writes, {} violations",
        verdict.seed,
        verdict.simulated.as_secs(),
        verdict.writes,
        verdict.violations.len()
    );
    for found in &verdict.violations {
        text.push_str(&format!(
            "\n  {} (at {} s): {}",
            found.rule, found.at, found.detail
        ));
    }
    text
}

fn code(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
