//! What Tyk holds: documents as written, documents as loaded, certificates. No I/O; a reload is a function of the files
//! and of what was loaded before.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{certificate::Store, document::Definition, double::Switches, fill, program::Program};

/// A document as it was written.
pub(crate) struct File {
    pub(crate) document: Value,
    pub(crate) definition: Definition,
    digest: [u8; 32],
    /// The Dashboard's own key.
    pub(crate) database: String,
}

impl File {
    pub(crate) fn new(document: Value, database: String) -> Arc<Self> {
        let digest = Sha256::digest(serde_json::to_vec(&document).unwrap_or_default()).into();
        let definition = Definition::of(&document);
        Arc::new(Self {
            document,
            definition,
            digest,
            database,
        })
    }
}

/// A document as it is served.
pub(crate) struct Api {
    pub(crate) file: Arc<File>,
    /// Where it listens; not what was written if another API was there.
    pub(crate) path: String,
    shown: OnceLock<Value>,
    program: OnceLock<Arc<Program>>,
}

impl Api {
    pub(crate) fn new(file: Arc<File>, path: String) -> Arc<Self> {
        Arc::new(Self {
            file,
            path,
            shown: OnceLock::new(),
            program: OnceLock::new(),
        })
    }

    /// What it does; the turn of its backends lives as long as the document is unchanged.
    pub(crate) fn program(&self, switches: Switches) -> Arc<Program> {
        Arc::clone(
            self.program
                .get_or_init(|| Arc::new(Program::of(&self.file, switches))),
        )
    }

    /// As GET shows it.
    pub(crate) fn shown(&self, listen: &str) -> &Value {
        self.shown
            .get_or_init(|| fill::shown(&self.file.document, &self.file.definition, &self.path, listen))
    }
}

/// Everything.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) files: BTreeMap<String, Arc<File>>,
    pub(crate) loaded: BTreeMap<String, Arc<Api>>,
    pub(crate) certificates: Store,
    /// Grows with each load.
    pub(crate) loads: u64,
    /// Keys of the Dashboard's database and generated ids.
    made: u64,
    /// Of an API of the Dashboard: what its users and groups were set to.
    pub(crate) owners: BTreeMap<String, Value>,
    /// Tokens and the APIs that they open.
    pub(crate) keys: HashMap<String, Vec<String>>,
}

impl State {
    /// A number that nobody had.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Reads all files again. What did not change stays as it is, also under a path that it was moved to. A newcomer or a
    /// changed document whose host and path are taken listens elsewhere, unless it was there before.
    pub(crate) fn load(&mut self) {
        let mut places: HashMap<(String, String), usize> = HashMap::new();
        for (id, file) in &self.files {
            if !file.definition.loads() {
                continue;
            }
            let path = match self.unchanged(id, file) {
                Some(api) => api.path.clone(),
                None => file.definition.path.clone(),
            };
            *places.entry((file.definition.domain.clone(), path)).or_default() += 1;
        }
        let mut loaded = BTreeMap::new();
        for (id, file) in &self.files {
            if let Some(api) = self.unchanged(id, file) {
                loaded.insert(id.clone(), Arc::clone(api));
                continue;
            }
            if !file.definition.loads() {
                continue;
            }
            let taken = |path: &str| {
                places
                    .get(&(file.definition.domain.clone(), path.to_owned()))
                    .is_some_and(|number| *number > 1)
            };
            let mut path = file.definition.path.clone();
            let kept = self.loaded.get(id).is_some_and(|api| api.path == path);
            if taken(&path) && !kept {
                path = format!("{path}-{id}");
                while taken(&path) {
                    path.push('_');
                }
            }
            loaded.insert(id.clone(), Api::new(Arc::clone(file), path));
        }
        self.loaded = loaded;
        self.loads += 1;
    }

    fn unchanged(&self, id: &str, file: &Arc<File>) -> Option<&Arc<Api>> {
        self.loaded
            .get(id)
            .filter(|api| Arc::ptr_eq(&api.file, file) || api.file.digest == file.digest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(state: &mut State, id: &str, path: &str, nonce: u32) {
        let document = json!({"x-nonce": nonce, "x-tyk-api-gateway": {
            "info": {"id": id}, "server": {"listenPath": {"value": path}},
        }});
        state
            .files
            .insert(id.to_owned(), File::new(document, String::new()));
    }

    fn path(state: &State, id: &str) -> String {
        state
            .loaded
            .get(id)
            .map(|api| api.path.clone())
            .unwrap_or_default()
    }

    #[test]
    fn a_newcomer_moves_and_stays_there_until_its_document_changes() {
        let mut state = State::default();
        write(&mut state, "a", "/p", 0);
        state.load();
        write(&mut state, "b", "/p", 0);
        state.load();
        assert_eq!(
            (path(&state, "a"), path(&state, "b")),
            ("/p".into(), "/p-b".into())
        );
        state.files.remove("a");
        state.load();
        write(&mut state, "b", "/p", 0);
        state.load();
        assert_eq!(path(&state, "b"), "/p-b", "equal bytes change nothing");
        write(&mut state, "b", "/p", 1);
        state.load();
        assert_eq!(path(&state, "b"), "/p");
    }

    #[test]
    fn two_newcomers_both_move() {
        let mut state = State::default();
        write(&mut state, "a", "/p", 0);
        write(&mut state, "b", "/p", 0);
        state.load();
        assert_eq!(
            (path(&state, "a"), path(&state, "b")),
            ("/p-a".into(), "/p-b".into())
        );
        // The other one stays away, so this one has the path for itself.
        write(&mut state, "a", "/p", 1);
        state.load();
        assert_eq!(
            (path(&state, "a"), path(&state, "b")),
            ("/p".into(), "/p-b".into())
        );
    }
}
