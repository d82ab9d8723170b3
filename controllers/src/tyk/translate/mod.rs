//! From a plan to a Tyk OAS document: canonical JSON, equal meaning, equal bytes. Decides nothing about routes.
