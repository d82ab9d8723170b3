//! The sweep: one list of a Tyk, and the owner of each document that nobody has spoken of. What follows from it is decided
//! in `orphans`.

use std::{sync::Arc, time::Duration};

use crate::tyk::{
    client::{Signed, TykApi, TykError},
    translate::{ID, Owner},
};

/// Every document of this installation (cluster and controllerName) that `unknown` says nobody knows, with its owner. A list that shows no owners is
/// followed by a question for each, `per_second` at most.
pub(super) async fn sweep(
    api: &Arc<dyn TykApi>,
    (cluster, controller): (&str, &str),
    unknown: impl Fn(&str) -> bool,
    per_second: u32,
) -> Result<Vec<(String, Owner)>, TykError> {
    let mut found = Vec::new();
    let pause = Duration::from_secs(1) / per_second.max(1);
    for listed in api.list().await? {
        // Ours begin like this, whoever else signs like us.
        if !listed.id.starts_with(ID) || !unknown(&listed.id) {
            continue;
        }
        let owner = match listed.signed {
            Signed::By(owner) => Some(owner),
            Signed::Not => None,
            Signed::NotShown => {
                tokio::time::sleep(pause).await;
                let document = api.get(&listed.id).await?;
                document.and_then(|document| Owner::of(&document))
            }
        };
        if let Some(owner) = owner.filter(|owner| owner.cluster == cluster && owner.controller == controller)
        {
            found.push((listed.id, owner));
        }
    }
    Ok(found)
}
