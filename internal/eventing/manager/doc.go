// Package manager is the eventing operator. It installs, watches, repairs and removes what an
// Eventing object asks for.
//
// Each reconcile reads everything live (observe), asks decide.Rules what follows from that, and
// acts. No step is stored: a killed operator goes on from what is in the cluster. Watches only
// start a reconcile; nothing is decided from a cache.
package manager
