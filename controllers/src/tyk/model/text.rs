//! Words that several messages share. Messages are pure functions of state: no times, no counters, bounded length.

use super::super::objects::Key;

/// How many items of a list are spelled out.
const SHOWN: usize = 8;
/// How long one item may be, in characters.
const ITEM: usize = 600;

/// A list for people: the first items, and how many more there are.
pub(super) fn list<I: IntoIterator<Item = String>>(items: I) -> String {
    list_of(SHOWN, items)
}

/// A list of which at most `most` items are spelled out.
pub(super) fn list_of<I: IntoIterator<Item = String>>(most: usize, items: I) -> String {
    let mut items = items.into_iter();
    let mut shown: Vec<String> = items.by_ref().take(most).map(short).collect();
    let more = items.count();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join("; ")
}

fn short(item: String) -> String {
    cut(item, ITEM)
}

/// A text, cut when it has more than `most` characters.
pub(super) fn cut(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned() + "…",
        None => text,
    }
}

/// A host for people.
pub(super) fn host(host: Option<&str>) -> String {
    host.map_or_else(|| "any host".to_owned(), |host| format!("host {host}"))
}

/// `Kind namespace/name`.
pub(super) fn object(kind: &str, key: &Key) -> String {
    format!("{kind} {key}")
}

/// `1 API`, `2 APIs`.
pub(super) fn count(n: usize, one: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{n} {one}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_items_are_bounded() {
        assert_eq!(list(["a".to_owned(), "b".to_owned()]), "a; b");
        let many = list((0..100).map(|i| format!("{i}{}", "ü".repeat(5_000))));
        assert!(many.ends_with("; and 92 more"));
        assert!(many.chars().count() < 9 * (ITEM + 20));
    }
}
