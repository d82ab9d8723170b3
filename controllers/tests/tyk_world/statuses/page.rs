//! The rows, the tables of the page, and the tables of Tyk Operator's reference: the same reasons.

use std::{collections::BTreeSet, fs, path::Path};

use super::{served_rows, switched_off_rows, unknown_bundle_rows};

pub(super) type Reason = (String, String, String, String);

pub(super) fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::read_to_string(root.join("docs/src/tyk/conditions.md")).unwrap()
}

/// Rows of a table of the page, their first `columns` cells.
pub(super) fn rows_of_page(table: &str, columns: usize) -> BTreeSet<Vec<String>> {
    let (text, begin, end) = (
        page(),
        format!("<!-- {table}:begin -->"),
        format!("<!-- {table}:end -->"),
    );
    let (_, rest) = text.split_once(&begin).unwrap();
    let (rows, _) = rest.split_once(&end).unwrap();
    rows.lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells = line.split('|').skip(1).take(columns);
            cells
                .map(|cell| cell.trim().trim_matches('`').to_owned())
                .collect()
        })
        .collect()
}

/// Table, condition, status, reason.
pub(super) fn of_page() -> BTreeSet<Reason> {
    let tables = ["gatewayclass", "gateway", "listener", "httproute", "definition"];
    tables
        .iter()
        .flat_map(|table| {
            rows_of_page(&format!("reasons:{table}"), 3)
                .into_iter()
                .map(|row| {
                    (
                        (*table).to_owned(),
                        row[0].clone(),
                        row[1].clone(),
                        row[2].clone(),
                    )
                })
        })
        .collect()
}

pub(super) fn of_rows() -> BTreeSet<Reason> {
    let rows = [served_rows(), unknown_bundle_rows(), switched_off_rows()];
    rows.iter()
        .flatten()
        .flat_map(|row| row.says.iter().map(|said| reason(row.at.table(), said)))
        .collect()
}

/// From `Type status/reason`.
pub(super) fn reason(table: &str, said: &str) -> Reason {
    let (type_, rest) = said.split_once(' ').unwrap();
    let (status, reason) = rest.split_once('/').unwrap();
    (table.into(), type_.into(), status.into(), reason.into())
}

#[test]
pub(super) fn every_row_of_the_page_is_shown_and_every_shown_reason_is_on_the_page() {
    assert_eq!(of_rows(), of_page());
}

/// The tables of Tyk Operator 1.6's reference, and what stands here for a row that differs on purpose.
pub(super) const SOURCE: &[(&str, &[&str])] = &[
    (
        "gatewayclass",
        &["Accepted True/Accepted", "Accepted False/InvalidParameters"],
    ),
    (
        "gateway",
        &[
            "Accepted True/ListenersNotValid",
            "Accepted False/ListenersNotValid",
            "Accepted False/Invalid",
            "Programmed False/Invalid",
            "Programmed False/UnsupportedAddress",
            "Programmed False/AddressNotAssigned",
        ],
    ),
    (
        "listener",
        &[
            "Accepted False/UnsupportedProtocol",
            "Accepted False/PortUnavailable",
            "Accepted False/ProtocolConflict",
            "Accepted False/HostnameConflict",
            "ResolvedRefs False/InvalidCertificateRef",
            "ResolvedRefs False/RefNotPermitted",
            "ResolvedRefs False/InvalidRouteKinds",
        ],
    ),
    (
        "httproute",
        &[
            "Accepted True/Accepted",
            "Accepted False/NoMatchingParent",
            "Accepted False/NotAllowedByListeners",
            "Accepted False/NoMatchingListenerHostname",
            "Accepted False/UnsupportedValue",
            "Accepted False/EnvironmentUnresolved",
            "Accepted False/TranslationFailed",
            "Accepted False/AttachmentConflict",
            "Accepted False/BaseDocumentUnresolved",
            "Accepted False/BaseDocumentInvalid",
            "Accepted False/DataPlaneShared",
            "PartiallyInvalid True/UnsupportedValue",
            "ResolvedRefs False/InvalidKind",
            "ResolvedRefs False/RefNotPermitted",
            "ResolvedRefs False/BackendNotFound",
        ],
    ),
    (
        "definition",
        &[
            "Accepted True/Attached",
            "Accepted False/NotAttached",
            "Accepted False/BaseDocumentUnresolved",
            "Accepted False/DocumentInvalid",
            "Accepted False/AttachmentConflict",
            "Accepted False/UnsupportedTarget",
            "Accepted Unknown/GatewayAPIUnavailable",
        ],
    ),
];

#[test]
pub(super) fn every_reason_of_tyk_operator_has_its_row() {
    let shown = of_rows();
    let missing: Vec<Reason> = SOURCE
        .iter()
        .flat_map(|(table, says)| says.iter().map(|said| reason(table, said)))
        .filter(|reason| !shown.contains(reason))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
