//! Under which names an installation marks routes: finalizer and annotation. Installations with different controllerNames
//! share a cluster, and a route may be served by both; each must see its own marks and no others. Pure.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::tyk::{CONTROLLER_NAME, objects::hex};

/// The finalizer of the default controllerName.
pub const FINALIZER: &str = "routewright.dev/tyk-httproute";

/// The annotation of the default controllerName, with the ids that a route remembers.
pub const ANNOTATION: &str = "routewright.dev/tyk-apis";

/// The finalizer that an installation puts on routes.
pub fn finalizer(controller: &str) -> Cow<'static, str> {
    own(FINALIZER, controller)
}

/// The annotation that an installation writes on routes.
pub fn annotation(controller: &str) -> Cow<'static, str> {
    own(ANNOTATION, controller)
}

/// A controllerName has a slash and up to 253 characters: a name of metadata holds its digest only.
fn own(name: &'static str, controller: &str) -> Cow<'static, str> {
    if controller == CONTROLLER_NAME {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!(
        "{name}-{}",
        hex(Sha256::digest(controller).iter().take(4))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_has_the_short_names_and_each_other_installation_its_own() {
        assert_eq!(finalizer(CONTROLLER_NAME), "routewright.dev/tyk-httproute");
        assert_eq!(annotation(CONTROLLER_NAME), "routewright.dev/tyk-apis");
        // printf example.org/tyk | sha256sum
        assert_eq!(annotation("example.org/tyk"), ANNOTATION_OF_EXAMPLE);
        assert_ne!(finalizer("example.org/tyk"), finalizer("example.org/tyk2"));
        // And it is a name that the API server takes
        let long = finalizer(&format!("example.org/{}", "x".repeat(200)));
        assert!(long.split_once('/').unwrap().1.len() <= 63, "{long}");
    }

    const ANNOTATION_OF_EXAMPLE: &str = "routewright.dev/tyk-apis-157e5edb";
}
