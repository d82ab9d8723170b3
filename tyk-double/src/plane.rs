//! Which API gets a request: hosts before no host, the longest listen path first. Looked up by text where it is text, so
//! that thousands of APIs cost no more than a few.

use std::{collections::HashMap, sync::Arc};

use regex::Regex;

use crate::{
    document::{Definition, templates},
    double::Switches,
    program::Program,
    state::{Api, State},
};

/// An API at its place.
pub(crate) struct Place {
    pub(crate) program: Arc<Program>,
    pub(crate) path: String,
    /// The listen path if it is more than text, anchored at the start.
    pub(crate) template: Option<Regex>,
    /// Place in Tyk's order.
    rank: usize,
}

/// APIs with the same host.
#[derive(Default)]
struct Group {
    literals: HashMap<String, usize>,
    templates: Vec<usize>,
}

/// All of them. Immutable: a load makes a new one.
#[derive(Default)]
pub(crate) struct Plane {
    places: Vec<Place>,
    hosts: HashMap<String, Group>,
    patterns: Vec<(Regex, bool, Group)>,
    anywhere: Group,
}

/// What became of the search.
pub(crate) enum Found<'a> {
    /// This API; the request came by `/<id>/`.
    Api(&'a Place),
    /// Nothing is there.
    Nothing,
}

/// Segments that are a template as a whole count for nothing.
fn length(path: &str) -> usize {
    if !path.contains('{') {
        return path.len();
    }
    let segments = path
        .split('/')
        .filter(|segment| !(segment.len() > 2 && segment.starts_with('{') && segment.ends_with('}')));
    path.matches('/').count() + segments.map(str::len).sum::<usize>()
}

/// A text with templates as a regular expression; `plain` stands for one without a pattern of its own.
fn template(text: &str, plain: &str) -> Option<Regex> {
    let names = templates(text).ok()?;
    let mut pattern = String::from("^");
    let mut rest = text;
    for name in &names {
        let (before, after) = rest.split_once('{')?;
        pattern.push_str(&regex::escape(before));
        let inner = name.split_once(':').map_or(plain, |(_, inner)| inner);
        pattern.push_str(&format!("(?:{inner})"));
        rest = after.get(name.len() + 1..)?;
    }
    pattern.push_str(&regex::escape(rest));
    Regex::new(&pattern).ok()
}

fn served(definition: &Definition) -> bool {
    !definition.internal && !definition.path.contains(' ')
}

impl Plane {
    pub(crate) fn of(state: &State, switches: Switches) -> Self {
        let domain = |api: &Api| switches.custom_domains && !api.file.definition.domain.is_empty();
        let mut apis: Vec<&Arc<Api>> = state
            .loaded
            .values()
            .filter(|api| served(&api.file.definition))
            .collect();
        apis.sort_by_key(|api| (!domain(api), std::cmp::Reverse(length(&api.path))));
        let mut plane = Self::default();
        let mut pattern_of: HashMap<String, usize> = HashMap::new();
        for (rank, api) in apis.into_iter().enumerate() {
            let name = &api.file.definition.domain;
            let group = if !domain(api) {
                &mut plane.anywhere
            } else if name.contains('{') {
                let at = match pattern_of.get(name) {
                    Some(at) => *at,
                    None => {
                        let Some(regex) = template(name, "[^.]+")
                            .and_then(|regex| Regex::new(&format!("{}$", regex.as_str())).ok())
                        else {
                            continue;
                        };
                        plane.patterns.push((regex, name.contains(':'), Group::default()));
                        pattern_of.insert(name.clone(), plane.patterns.len() - 1);
                        plane.patterns.len() - 1
                    }
                };
                match plane.patterns.get_mut(at) {
                    Some((_, _, group)) => group,
                    None => continue,
                }
            } else {
                plane.hosts.entry(name.clone()).or_default()
            };
            let at = plane.places.len();
            let regex = if api.path.contains('{') {
                let Some(regex) = template(&api.path, "[^/]+") else {
                    continue;
                };
                group.templates.push(at);
                Some(regex)
            } else {
                group.literals.entry(api.path.clone()).or_insert(at);
                None
            };
            let by_id = format!("/{}/", api.file.definition.id);
            group.literals.entry(by_id).or_insert(at);
            plane.places.push(Place {
                program: api.program(switches),
                path: api.path.clone(),
                template: regex,
                rank,
            });
        }
        plane
    }

    /// The API for a host (as sent) and a decoded path.
    pub(crate) fn find(&self, host: &str, path: &str, switches: Switches) -> Found<'_> {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let mut best: Option<&Place> = None;
        let mut look = |group: &Group| {
            let ends = path.char_indices().map(|(at, c)| at + c.len_utf8());
            let literals = ends.filter_map(|end| group.literals.get(path.get(..end)?));
            let templates = group.templates.iter().filter(|at| {
                let place = self.places.get(**at);
                place
                    .and_then(|place| place.template.as_ref())
                    .is_some_and(|regex| regex.is_match(path))
            });
            for at in literals.chain(templates) {
                let place = self.places.get(*at);
                if let Some(place) = place.filter(|place| best.is_none_or(|best| place.rank < best.rank)) {
                    best = Some(place);
                }
            }
        };
        if let Some(group) = self.hosts.get(name) {
            look(group);
        }
        for (regex, _, group) in &self.patterns {
            if regex.is_match(name) {
                look(group);
            }
        }
        look(&self.anywhere);
        let Some(place) = best else { return Found::Nothing };
        // A longer word is not below the path, and nobody else is asked.
        let exempt = place.template.is_some() || place.path.ends_with('/');
        let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        let strictly = path.strip_prefix(place.path.as_str()).is_none_or(below);
        if switches.strict_routes && !exempt && !strictly {
            return Found::Nothing;
        }
        Found::Api(place)
    }
}

impl Place {
    /// Bytes of a decoded path that the listen path takes.
    pub(crate) fn taken(&self, path: &str) -> usize {
        match &self.template {
            Some(regex) => regex.find(path).map_or(0, |found| found.end()),
            None if path.starts_with(&self.path) => self.path.len(),
            None => 0,
        }
    }
}
