//! Reconciler framework: a reconcile is a tower service, each concern is one layer.
