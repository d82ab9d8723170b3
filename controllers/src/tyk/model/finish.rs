//! The last word on a route: its draft, and which of its claims were lost.

use std::collections::{BTreeMap, BTreeSet};

use reconcile_kit::Condition;

use super::{
    super::{
        objects::Key,
        translate::{identity, identity_of},
        verdict::{ApiPlan, Disposition, ParentVerdict, RouteVerdict},
    },
    claims::{Claimant, Claims},
    route::{Draft, DraftGateway, DraftParent},
    text,
};

/// How many dropped rules are listed: as many as a route has.
const RULES: usize = 16;

/// Listeners that a route counts for: Gateway and index.
pub(super) type Counted = Vec<(Key, usize)>;

struct Said {
    accepted: Condition,
    partially: Option<Condition>,
    disposition: Disposition,
}

/// Finishes a draft.
pub(super) fn finish(draft: Draft, claims: &Claims) -> (RouteVerdict, Counted) {
    let mut verdict = RouteVerdict {
        notices: draft.notices,
        ..RouteVerdict::default()
    };
    let mut counted: BTreeSet<(Key, usize)> = BTreeSet::new();
    let mut hosts: BTreeMap<&Key, BTreeSet<&Option<String>>> = BTreeMap::new();
    let mut kept: BTreeMap<&Key, BTreeSet<&Option<String>>> = BTreeMap::new();
    // The winner that stands in the way of each plan, by Gateway and in the order of its plans.
    let lost: BTreeMap<&Key, Vec<Option<&Claimant>>> = draft
        .gateways
        .iter()
        .map(|(key, gateway)| {
            let lost = gateway.plans.iter().map(|(_, claim)| claims.lost_to(claim));
            (key, lost.collect())
        })
        .collect();
    for parent in &draft.parents {
        let lost = lost.get(&parent.gateway).map_or(&[][..], Vec::as_slice);
        let said = judge(parent, draft.gateways.get(&parent.gateway), lost);
        if said.disposition == Disposition::Serve && !draft.deleting {
            counted.extend(parent.listeners.iter().map(|l| (parent.gateway.clone(), *l)));
        }
        if said.disposition == Disposition::Serve {
            hosts.entry(&parent.gateway).or_default().extend(&parent.hosts);
        }
        if said.disposition == Disposition::Keep {
            kept.entry(&parent.gateway).or_default().extend(&parent.hosts);
        }
        let disposition = if draft.deleting {
            Disposition::Remove
        } else {
            said.disposition
        };
        verdict
            .gateways
            .entry(parent.gateway.clone())
            .and_modify(|known| *known = stronger(*known, disposition))
            .or_insert(disposition);
        let mut conditions = vec![said.accepted, draft.resolved.clone()];
        conditions.extend(said.partially);
        verdict.parents.push(ParentVerdict {
            parent: parent.parent.clone(),
            gateway: parent.gateway.clone(),
            conditions,
        });
    }
    if !draft.deleting {
        // Which plans stand, in the order of Gateways and plans; then the plans are moved, not copied.
        let mut stands: Vec<bool> = Vec::new();
        for (key, gateway) in &draft.gateways {
            let lost = lost.get(key).map_or(&[][..], Vec::as_slice);
            let (hosts, kept) = (hosts.get(key), kept.get(key));
            let serves = |host| hosts.is_some_and(|hosts| hosts.contains(host));
            let keeps = |host| kept.is_some_and(|kept| kept.contains(host)) && !serves(host);
            let won = || {
                let plans = gateway.plans.iter().zip(lost);
                plans.map(|((plan, _), lost)| (plan, lost.is_none()))
            };
            stands.extend(won().map(|(plan, won)| won && serves(&plan.host)));
            if kept.is_some() {
                let may = won().filter(|(plan, won)| *won && keeps(&plan.host));
                let unplanned = gateway.unplanned.iter().filter(|(host, _)| keeps(host));
                let ids = may.map(|(plan, _)| identity(plan)).chain(
                    unplanned.map(|(host, path)| identity_of(&draft.route, key, host.as_deref(), path)),
                );
                verdict.keep.insert(key.clone(), ids.collect());
            }
        }
        let plans = draft.gateways.into_values().flat_map(|gateway| gateway.plans);
        let apis = plans.zip(stands).filter(|(_, stands)| *stands);
        verdict.apis = apis.map(|((plan, _), _)| plan).collect();
    }
    (verdict, counted.into_iter().collect())
}

/// Serving one parent's APIs outweighs what another parent of the same Gateway is refused for.
fn stronger(a: Disposition, b: Disposition) -> Disposition {
    match (a, b) {
        (Disposition::Serve, _) | (_, Disposition::Serve) => Disposition::Serve,
        (Disposition::Keep, _) | (_, Disposition::Keep) => Disposition::Keep,
        _ => Disposition::Remove,
    }
}

fn refuse(reason: &'static str, message: String, disposition: Disposition) -> Said {
    Said {
        accepted: Condition::new("Accepted", false, reason, message),
        partially: None,
        disposition,
    }
}

/// What is said of one parent.
fn judge(parent: &DraftParent, gateway: Option<&DraftGateway>, lost: &[Option<&Claimant>]) -> Said {
    if let Some(refusal) = &parent.refusal {
        return refuse(refusal.reason, refusal.message.clone(), refusal.disposition);
    }
    // A parent that attaches has a draft of its Gateway.
    let Some(gateway) = gateway else {
        return refuse("NoMatchingParent", String::new(), Disposition::Remove);
    };
    if let Some(refusal) = &gateway.refusal {
        return refuse(refusal.reason, refusal.message.clone(), refusal.disposition);
    }
    let mut served = 0_usize;
    // Lost to other routes, and to other parents of this route.
    let (mut to_others, mut to_own) = (Vec::new(), Vec::new());
    let mut failed: BTreeMap<&str, String> = BTreeMap::new();
    let rule_of = |path: &str| {
        let rules = gateway.rules.get(path);
        rules.and_then(|rules| rules.first()).copied().unwrap_or_default()
    };
    let rule = |plan: &ApiPlan| rule_of(&plan.path);
    let no_document = |path: &str, why: &str| format!("spec.rules[{}]: path {path}: {why}", rule_of(path));
    // Whether a listener is valid does not decide about a route: what no valid one serves is judged all the same.
    if parent.hosts.is_empty() {
        let all = gateway.failed.iter();
        failed.extend(all.map(|(path, why)| (path.as_str(), no_document(path, why))));
    }
    for ((plan, _), lost) in gateway.plans.iter().zip(lost) {
        if !parent.hosts.contains(&plan.host) {
            continue;
        }
        match lost {
            None => {
                served += 1;
                if let Some(why) = gateway.failed.get(&plan.path) {
                    failed
                        .entry(&plan.path)
                        .or_insert_with(|| no_document(&plan.path, why));
                }
            }
            Some(winner) if winner.route == plan.route => to_own.push((plan, *winner)),
            Some(winner) => to_others.push((plan, *winner)),
        }
    }
    let others = |plan: &ApiPlan, winner: &Claimant| {
        let why = if winner.deleting {
            "which is being deleted; it is served here once the APIs of that route are gone"
        } else {
            "which comes first (the oldest, then by name); take another host or path"
        };
        format!(
            "spec.rules[{}]: {}, path {} is served by HTTPRoute {} on Gateway {}, {why}",
            rule(plan),
            text::host(plan.host.as_deref()),
            plan.path,
            winner.route,
            winner.gateway
        )
    };
    if let Some(refusal) = &gateway.base_refusal {
        return refuse(refusal.reason, refusal.message.clone(), refusal.disposition);
    }
    let shared = |plan: &ApiPlan, winner: &Claimant| {
        format!(
            "{}, path {} is served through Gateway {} on the same data plane",
            text::host(plan.host.as_deref()),
            plan.path,
            winner.gateway
        )
    };
    // What other routes serve is no refusal, as Gateway API has it: of routes that match the same, all are accepted, and
    // one serves. `PartiallyInvalid` says which.
    if served == 0 && !to_own.is_empty() && to_others.is_empty() {
        let message = text::list(to_own.iter().map(|(plan, winner)| shared(plan, winner)));
        let message =
            format!("{message}; give the Gateways different dataPlane.tags, or name one of them only");
        return refuse("DataPlaneShared", message, Disposition::Remove);
    }
    if !failed.is_empty() {
        let message = text::list(failed.into_values());
        return refuse("TranslationFailed", message, Disposition::Keep);
    }
    let mut notes = vec![text::count(served, "API")];
    notes.extend(parent.unserved.iter().cloned());
    notes.extend(to_own.iter().map(|(plan, winner)| shared(plan, winner)));
    let mut dropped: Vec<(usize, String)> = gateway.dropped.clone();
    dropped.extend(
        to_others
            .iter()
            .map(|(plan, winner)| (rule(plan), others(plan, winner))),
    );
    dropped.sort();
    let partially = (!dropped.is_empty()).then(|| {
        let message = text::list_of(
            RULES,
            dropped
                .into_iter()
                .map(|(rule, why)| format!("Dropped Rule {rule}: {why}")),
        );
        Condition::new("PartiallyInvalid", true, "UnsupportedValue", message)
    });
    Said {
        accepted: Condition::new("Accepted", true, "Accepted", text::list(notes)),
        partially,
        disposition: Disposition::Serve,
    }
}
