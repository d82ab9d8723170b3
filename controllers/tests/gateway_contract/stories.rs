//! The manifests of `routewright translate`'s stories, decoded, judged and translated: every document of theirs loads.

use std::{fs, path::Path};

use routewright::tyk::{
    Settings,
    model::Model,
    objects::{Event, Key, Kind, Object},
    translate::identity,
    verdict::ApiPlan,
};
use serde_json::Value;

use crate::{Backends, Case, support::target};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/translate/stories");

/// The objects of a folder; what does not read is another test's matter.
fn objects(folder: &Path) -> Vec<Object> {
    let mut found = Vec::new();
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "yaml"))
    {
        for document in fs::read_to_string(file).unwrap().split("\n---") {
            let Ok(value) = serde_saphyr::from_str::<Value>(document) else {
                continue;
            };
            let items = value.get("items").and_then(Value::as_array).cloned();
            for object in items.unwrap_or_else(|| vec![value]) {
                found.extend(Object::decode(&object).ok().flatten());
            }
        }
    }
    found
}

fn plans(folder: &Path) -> Vec<ApiPlan> {
    let mut model = Model::new(Settings::default());
    let mut routes: Vec<Key> = Vec::new();
    for object in objects(folder) {
        if let (Kind::HttpRoute, key) = object.id() {
            routes.push(key.clone());
        }
        model.apply(Event::Seen(Box::new(object)));
    }
    routes
        .iter()
        .filter_map(|route| model.route(route))
        .flat_map(|verdict| verdict.apis.clone())
        .collect()
}

pub(crate) fn documents_of_realistic_manifests_load(backends: &Backends) -> Case {
    let mut folders: Vec<_> = fs::read_dir(FOLDER).unwrap().map(|e| e.unwrap().path()).collect();
    folders.sort();
    let mut all = Vec::new();
    for (n, folder) in folders.iter().enumerate() {
        for mut plan in plans(folder) {
            // Stories share a gateway here: each gets paths of its own, and no name that is not there is looked up.
            plan.path = format!("/story{n}{}", plan.path.trim_end_matches('/'));
            for one in &mut plan.targets {
                if one.authority.is_some() {
                    one.authority = target(&backends.a.authority, 1).authority;
                }
            }
            all.push(plan);
        }
    }
    assert!(all.len() > 10, "only {} APIs in the stories", all.len());
    // That each is loaded under its path is looked at for every case.
    let ids: Vec<String> = all.iter().map(identity).collect();
    Case::new(all, move |gateway| {
        for id in &ids {
            assert_eq!(gateway.get(id)["info"]["title"], id.as_str());
        }
    })
}
