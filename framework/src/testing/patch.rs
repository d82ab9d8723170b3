//! JSON merge patch and JSON patch, with the refusals of the API server.

use serde_json::Value;

use super::failure::Failure;

/// RFC 7386.
pub(crate) fn merge(mut object: Value, patch: &Value) -> Result<Value, Failure> {
    if !patch.is_object() {
        return Err(Failure::bad_request("the merge patch is no object"));
    }
    json_patch::merge(&mut object, patch);
    Ok(object)
}

/// RFC 6902. A patch that does not fit (a failing `test`, a missing path) is 422 without details; one that is no
/// patch is 400.
pub(crate) fn json(mut object: Value, patch: &Value) -> Result<Value, Failure> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
    json_patch::patch(&mut object, &patch).map_err(|_| Failure::patch_refused())?;
    Ok(object)
}
