//! Which plans have a document for sure: said without making it, for those who only need to know that there is one.

use crate::tyk::{
    objects::text::token,
    verdict::{ApiPlan, OperationPlan},
};

/// Whether [`super::translate`] makes a document of a plan for sure. `false` says nothing: it is to be asked. Without an
/// attached definition and a ReplaceFullPath only a substitution token can stand in the way.
pub fn certain(plan: &ApiPlan) -> bool {
    let plain = |operation: &OperationPlan| {
        let edits = [&operation.request_headers, &operation.response_headers];
        let mut set = edits.iter().flat_map(|edit| edit.set.iter());
        operation.full_path.is_none()
            && operation
                .redirect
                .as_ref()
                .is_none_or(|redirect| token(&redirect.location).is_none())
            && set.all(|(name, value)| token(name).is_none() && token(value).is_none())
            && edits
                .iter()
                .flat_map(|edit| &edit.remove)
                .all(|name| token(name).is_none())
    };
    let mut texts = [Some(&plan.path), plan.prefix.as_ref(), plan.host.as_ref()]
        .into_iter()
        .flatten()
        .chain([&plan.connection.org])
        .chain(&plan.tags)
        .chain(plan.targets.iter().filter_map(|target| target.authority.as_ref()));
    plan.base.is_none()
        && !plan.operations.is_empty()
        && texts.all(|text| token(text).is_none())
        && plan.operations.values().all(plain)
}
