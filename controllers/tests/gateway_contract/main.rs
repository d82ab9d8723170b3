//! What both Tyk and its stand-in do, with the same test code: the data half posts every construct that translation
//! writes, loads it and asks; the REST half (`rest`) asks the API that the clients use. The control half (`control`) runs
//! the clients and the actors against the stand-in.
//!
//! Against the stand-in always, with the gateway's settings on and off: `double::on::…`, `double::off::…`. Against a Tyk
//! Gateway when one is given, `tyk::on::…`, `tyk::off::…`: `TYK_GATEWAY_BIN` (the program) with `TYK_GATEWAY_TEMPLATES`
//! (its folder `templates`) and `redis-server` in PATH, which are started on loopback and stopped again; or
//! `TYK_GATEWAY_URL` (http, it must reach this machine's loopback) with `TYK_GATEWAY_SECRET`. Without either those count
//! as ignored and say why, which the usual test harness cannot do; hence an own one that prints the same lines.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr
)]

mod attached;
mod backends;
mod filters;
mod gateway;
mod hosts;
mod methods;
mod rest;
mod stories;
#[path = "../tyk_translate/support.rs"]
mod support;
#[path = "../support/tyk_gateway.rs"]
mod tyk_gateway;

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Instant,
};

use gateway::{Gateway, Given, Switches};
use routewright::tyk::{
    Settings,
    objects::Key,
    translate::{Owner, stamp, translate},
    verdict::ApiPlan,
};
use tyk_gateway::wire::{self, Echo};

/// Backends that say what they got.
pub(crate) struct Backends {
    pub(crate) a: Echo,
    pub(crate) b: Echo,
}

/// One story: the plans that it needs, and what is asked once they are loaded.
pub(crate) struct Case {
    plans: Vec<ApiPlan>,
    check: Box<dyn Fn(&Gateway)>,
}

impl Case {
    pub(crate) fn new(plans: impl IntoIterator<Item = ApiPlan>, check: impl Fn(&Gateway) + 'static) -> Self {
        Self {
            plans: plans.into_iter().collect(),
            check: Box::new(check),
        }
    }
}

type Story = fn(&Backends) -> Case;

/// Names and stories.
macro_rules! stories {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$((stringify!($name), $module::$name as Story)),*]
    };
}

/// What holds whatever the gateway's settings are. Each story has paths of its own.
fn everywhere() -> Vec<(&'static str, Story)> {
    stories![
        methods::the_upstream_receives_the_full_path,
        methods::awkward_paths_are_literal,
        methods::a_rule_without_method_serves_every_method,
        methods::methods_that_no_rule_matches_answer_404,
        methods::a_document_is_kept_with_its_owner,
        backends::weights_are_shares,
        backends::unresolved_answers_500,
        backends::an_unresolved_share_fails,
        backends::the_host_header_arrives_as_sent,
        filters::request_headers_are_set_and_removed,
        filters::response_headers_are_set_and_removed,
        filters::headers_of_single_methods,
        filters::a_replaced_prefix,
        filters::a_removed_prefix,
        filters::a_replaced_prefix_of_every_target,
        filters::replaced_full_paths,
        filters::a_replaced_full_path_beside_kept_ones,
        filters::a_replaced_full_path_beside_a_replaced_prefix,
        filters::a_redirect_is_answered_by_the_gateway,
        filters::a_redirect_of_one_method,
        filters::a_clients_token_is_not_replaced,
        filters::a_rewrite_captures_no_token,
        filters::a_rewrite_under_the_id_of_an_api_leaks_nothing,
        attached::authentication_of_a_definition,
        attached::keys_as_the_page_makes_them,
        attached::a_redirect_is_open_despite_authentication,
        attached::an_allow_list_of_a_definition,
        attached::a_block_of_a_definition,
        attached::operations_of_a_definition,
        attached::header_changes_of_route_and_definition,
        attached::the_same_middleware_for_another_method,
        attached::settings_for_unmatched_methods_do_nothing,
        hosts::strict_routes_match_by_segment,
        hosts::certificate_ids_are_known_beforehand,
        rest::the_secret_is_asked_for,
        rest::a_write_shows_after_the_reload,
        rest::put_and_delete_want_what_is_loaded,
        rest::a_document_that_cannot_load,
        rest::ids_are_names_of_files,
        rest::what_is_refused_and_how,
        rest::what_is_accepted_although_wrong,
        rest::what_a_document_looks_like_afterwards,
        rest::a_rename_sticks,
        rest::two_newcomers_are_both_renamed,
        rest::certificates,
        rest::certificates_that_are_refused,
        rest::health_says_nothing_of_apis,
    ]
}

/// What needs custom domains.
fn switched_on() -> Vec<(&'static str, Story)> {
    stories![
        hosts::an_exact_host,
        hosts::a_wildcard_host,
        hosts::the_root_path,
        hosts::the_longest_path_wins,
        hosts::the_order_of_hosts,
        attached::another_spelling_of_a_key_is_the_same_to_tyk,
        stories::documents_of_realistic_manifests_load,
    ]
}

/// Stories of one gateway with one set of settings.
struct Round {
    given: Result<Given, String>,
    switches: Switches,
    stories: Vec<(String, Story)>,
}

fn rounds(filter: Option<&str>) -> Vec<Round> {
    let mut rounds = Vec::new();
    for place in ["double", "tyk"] {
        for (mode, switches) in [("on", Switches::On), ("off", Switches::Off)] {
            let mut stories = everywhere();
            if switches == Switches::On {
                stories.extend(switched_on());
            }
            let given = match place {
                "double" => Ok(Given::Double),
                _ => tyk_gateway::Given::from_environment().map(Given::Tyk),
            };
            let given = match (given, switches) {
                (Ok(Given::Tyk(tyk_gateway::Given::Url { .. })), Switches::Off) => {
                    Err("the gateway at TYK_GATEWAY_URL is asked once, with the settings it has".to_owned())
                }
                (given, _) => given,
            };
            let stories = stories
                .into_iter()
                .map(|(name, story)| (format!("{place}::{mode}::{name}"), story))
                .filter(|(name, _)| filter.is_none_or(|filter| name.contains(filter)))
                .collect();
            rounds.push(Round {
                given,
                switches,
                stories,
            });
        }
    }
    rounds
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let filter = words
        .iter()
        .find(|word| !word.starts_with('-'))
        .map(String::as_str);
    let rounds = rounds(filter);
    if words.iter().any(|word| word == "--list") {
        for (name, _) in rounds.iter().flat_map(|round| &round.stories) {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let number: usize = rounds.iter().map(|round| round.stories.len()).sum();
    println!("\nrunning {number} tests");
    let started = Instant::now();
    let (mut passed, mut failed, mut ignored) = (0, Vec::new(), 0);
    let mut why_not = None;
    for round in rounds {
        if round.stories.is_empty() {
            continue;
        }
        let given = match round.given {
            Ok(given) => given,
            Err(why) => {
                for (name, _) in &round.stories {
                    println!("test {name} ... ignored, {why}");
                }
                ignored += round.stories.len();
                why_not = Some(why);
                continue;
            }
        };
        for (name, outcome) in run(&given, round.switches, round.stories) {
            if outcome {
                println!("test {name} ... ok");
                passed += 1;
            } else {
                println!("test {name} ... FAILED");
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        println!("\nfailures:");
        for name in &failed {
            println!("    {name}");
        }
    }
    if let Some(why) = why_not {
        println!("\n{ignored} not run against a Tyk Gateway: {why}");
    }
    println!(
        "\ntest result: {}. {passed} passed; {} failed; {ignored} ignored; 0 measured; 0 filtered out; finished in \
         {:.2}s\n",
        if failed.is_empty() { "ok" } else { "FAILED" },
        failed.len(),
        started.elapsed().as_secs_f64()
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Starts a gateway, loads the documents of all stories at once (a reload takes a second), and asks.
fn run(given: &Given, switches: Switches, stories: Vec<(String, Story)>) -> Vec<(String, bool)> {
    let gateway = match catch_unwind(|| Gateway::start(given, switches)) {
        Ok(gateway) => gateway,
        Err(_) => return stories.into_iter().map(|(name, _)| (name, false)).collect(),
    };
    let backends = Backends {
        a: Echo::start("a"),
        b: Echo::start("b"),
    };
    let owner = Owner {
        cluster: "tests".to_owned(),
        controller: "routewright.dev/tyk".to_owned(),
        route: Key::new("team", "shop"),
        uid: "1".to_owned(),
    };
    let mut outcomes = BTreeMap::new();
    let mut ids = Vec::new();
    let mut checks = Vec::new();
    for (name, story) in stories {
        let loaded = catch_unwind(AssertUnwindSafe(|| {
            let case = story(&backends);
            let mut own = Vec::new();
            for plan in &case.plans {
                let api = stamp(translate(plan, &Settings::default()).unwrap(), &owner);
                gateway.post(&api);
                own.push((api.id, plan.path.clone()));
            }
            (case.check, own)
        }));
        match loaded {
            Ok((check, own)) => {
                ids.extend(own.iter().map(|(id, _)| id.clone()));
                checks.push((name, check, own));
            }
            Err(_) => {
                outcomes.insert(name, false);
            }
        }
    }
    gateway.reload();
    for (name, check, own) in checks {
        let good = catch_unwind(AssertUnwindSafe(|| {
            for (id, path) in &own {
                let found = gateway.get(id);
                let value = &found["x-tyk-api-gateway"]["server"]["listenPath"]["value"];
                assert_eq!(
                    value,
                    path.as_str(),
                    "{name}: the gateway renamed the listen path"
                );
            }
            check(&gateway);
        }))
        .is_ok();
        outcomes.insert(name, good);
    }
    gateway.clean(&ids);
    if outcomes.values().any(|good| !good) {
        gateway.show_log();
    }
    outcomes.into_iter().collect()
}
