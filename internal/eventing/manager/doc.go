// Package manager is the eventing operator. It reconciles Eventing objects: it installs, watches,
// repairs and removes eventing.
//
// Each reconcile reads the observed state live (observe), passes it to decide.Rules, and carries
// out the resulting actions. No step is stored: a restarted operator continues from the state of
// the cluster. Watches only trigger a reconcile; no decision is based on a cache.
package manager
