//! Gateways of one data plane whose listeners are meant for one host. Tyk knows no Gateways: a route through either may
//! serve any path of the host that no other route has.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::{
        objects::{Key, class::GATEWAY_NAMESPACES},
        verdict::{Mode, share_data_plane},
    },
    gateway::GatewayFacts,
    host, text,
};

/// How many pairs of one hostname are looked for: enough for a message.
const SHOWN: usize = 4;

/// Finds the Gateways of a site that share hosts with another Gateway, with a message for each. Two listeners without
/// hostname are no news: nothing in their specs claims a host.
pub(super) fn shared(gateways: &[&GatewayFacts]) -> BTreeMap<Key, String> {
    let mut named: BTreeMap<&str, Vec<&GatewayFacts>> = BTreeMap::new();
    let mut open: Vec<&GatewayFacts> = Vec::new();
    for gateway in gateways {
        let mut listeners = gateway.listeners.iter().filter(|listener| !listener.nameless);
        if listeners.clone().any(|listener| listener.hostname.is_none()) {
            open.push(gateway);
        }
        let names: BTreeSet<&str> = listeners
            .by_ref()
            .filter_map(|listener| listener.hostname.as_deref())
            .collect();
        for name in names {
            named.entry(name).or_default().push(gateway);
        }
    }
    let mut found: BTreeMap<&Key, BTreeSet<(&str, &Key)>> = BTreeMap::new();
    for (name, owners) in &named {
        let covering: Vec<&Vec<&GatewayFacts>> = above(name)
            .iter()
            .filter_map(|wild| named.get(wild.as_str()))
            .collect();
        for owner in owners {
            let others = owners
                .iter()
                .chain(&open)
                .chain(covering.iter().flat_map(|others| *others));
            let others = others.filter(|other| other.key != owner.key && meet(owner, other));
            for other in others.take(SHOWN) {
                found.entry(&owner.key).or_default().insert((*name, &other.key));
                let theirs = found.entry(&other.key).or_default();
                if theirs.len() <= SHOWN {
                    theirs.insert((*name, &owner.key));
                }
            }
        }
    }
    found
        .into_iter()
        .map(|(key, pairs)| {
            let pairs = pairs.into_iter().map(|(name, other)| format!("{name} with Gateway {other}"));
            let message = format!(
                "hosts are shared with other Gateways of the data plane, whose routes may serve paths of them: {}; give the \
                 Gateways tags of their own (Dashboard), or name the namespaces whose Gateways the GatewayClass allows in its \
                 annotation {GATEWAY_NAMESPACES}",
                text::list(pairs)
            );
            (key.clone(), message)
        })
        .collect()
}

/// The wildcards that cover a name, the nearest first.
fn above(name: &str) -> Vec<String> {
    let bare = name.strip_prefix("*.").unwrap_or(name);
    let dots = bare.match_indices('.').map(|(at, _)| at);
    dots.filter_map(|at| Some(format!("*{}", bare.get(at..)?)))
        .filter(|wild| wild != name && host::intersect(wild, name) == Some(name))
        .collect()
}

fn meet(one: &GatewayFacts, other: &GatewayFacts) -> bool {
    let open_source = |gateway: &GatewayFacts| {
        let connection = gateway.connection.as_ref();
        connection.is_ok_and(|connection| connection.mode == Mode::OpenSource)
    };
    open_source(one) || open_source(other) || share_data_plane(&one.tags, &other.tags)
}
