//! Gateway API on Tyk: what every GatewayClass, Gateway, HTTPRoute and TykOasApiDefinition must say, and which documents
//! Tyk must hold.
//!
//! ```text
//! platform    class, context, Gateway, listeners      rules      rules of a route, decoded
//! routes      verdict per parent, in its order         backends   references, ResolvedRefs, shares of traffic
//! claims      host and path on a data plane -> winner  documents  what Tyk holds against what is wanted
//! definitions documents attached to routes
//! ```

mod backends;
mod claims;
mod definitions;
mod documents;
mod platform;
mod routes;
mod rules;

use super::{
    Judgement,
    snapshot::{Flags, GATEWAY, TYK, TykFlags, World},
};

/// Something that holds, does not hold, or may hold: the contract or the oracle's knowledge leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tri {
    Yes,
    Maybe,
    No,
}

impl From<bool> for Tri {
    fn from(yes: bool) -> Self {
        if yes { Self::Yes } else { Self::No }
    }
}

/// One installation with Gateway API on Tyk.
struct Installation<'a> {
    flags: &'a Flags,
    tyk: &'a TykFlags,
    /// Owner key of the cluster.
    cluster: String,
}

/// Kinds without which the controllers wait.
const REQUIRED: [(&str, &str); 6] = [
    (GATEWAY, "GatewayClass"),
    (GATEWAY, "Gateway"),
    (GATEWAY, "HTTPRoute"),
    (GATEWAY, "ReferenceGrant"),
    (TYK, "OperatorContext"),
    (TYK, "TykOasApiDefinition"),
];

/// Judges Gateway API on Tyk for every installation that has it.
pub(crate) fn judge(world: &World<'_>, judgement: &mut Judgement) {
    let installations = world.snapshot.installations.iter();
    let running: Vec<(&Flags, &TykFlags)> = installations
        .filter_map(|flags| Some((flags, flags.tyk.as_ref()?)))
        .collect();
    if running.is_empty() {
        return;
    }
    if REQUIRED.iter().any(|(group, kind)| !world.is_served(group, kind)) {
        return judgement.skip("tyk: a required kind is not served");
    }
    for (flags, tyk) in &running {
        let same = |other: &&(&Flags, &TykFlags)| other.1.controller_name == tyk.controller_name;
        if running.iter().filter(same).count() > 1 {
            judgement.skip("tyk: several installations with one controllerName");
            continue;
        }
        let kube_system = world.get("", "Namespace", "", "kube-system");
        let cluster = tyk.cluster_id.clone();
        let cluster = cluster.or(kube_system.map(|namespace| namespace.uid().to_owned()));
        let installation = Installation {
            flags,
            tyk,
            cluster: cluster.unwrap_or_default(),
        };
        judge_installation(world, &installation, running.len() > 1, judgement);
    }
}

fn judge_installation(
    world: &World<'_>,
    installation: &Installation<'_>,
    several: bool,
    judgement: &mut Judgement,
) {
    let platform = platform::Platform::of(world, installation);
    let routes = routes::verdicts(world, installation, &platform);
    let claims = claims::Claims::of(world, installation, &platform, &routes);
    platform::judge_classes(world, installation, &platform, judgement);
    platform::judge_gateways(world, installation, &platform, &routes, &claims, judgement);
    routes::judge_routes(world, installation, &platform, &routes, &claims, judgement);
    documents::judge_documents(world, installation, &platform, &routes, &claims, judgement);
    match several {
        // A definition has room for one opinion.
        true => judgement.skip("tyk: definitions beside another installation"),
        false => definitions::judge(world, installation, &platform, &routes, judgement),
    }
}
