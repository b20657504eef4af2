package migration

// Access is one row of the table of what a job asks of the API server: verbs on
// one resource in one scope. The charts' Roles are generated from these tables
// (build/generate), and a test on a real API server holds both against what the
// job does: nothing is missing, and nothing is there that is never used.
type Access struct {
	// Group of the resource, "" for the core group.
	Group string
	// Resource in the plural, with its subresource if it is about that:
	// "pods/proxy".
	Resource string
	// Namespace, "" for all of them and for cluster-scoped kinds.
	Namespace string
	// Names limit the row to objects of these names. The preflight asks by name for
	// what such a row allows.
	Names []string
	Verbs []string
	// Knative limits the row to clusters that serve Knative's kinds at this
	// version: "" any, "v1", or "v1alpha1" for what lacks v1.
	Knative string
	// Served limits the row to clusters that serve this API, "" for all:
	// "authentication.istio.io/v1alpha1".
	Served string
	// Why is one clause for the one that reads the Role.
	Why string
}

// Accessor is a job that says what it asks of the API server, the state objects
// aside.
type Accessor interface {
	// Access follows the job's settings.
	Access() []Access
}

// EventAccess is what it takes to leave an Event in each namespace changed, ""
// if that may be any.
func EventAccess(namespace string) Access {
	return Access{Resource: "events", Namespace: namespace, Verbs: []string{"create"}, Why: "says in each namespace that was changed that it was"}
}

// WriterState is what a job that writes needs in the state namespace. The
// preflight asks for exactly this.
func WriterState(namespace string) []Access {
	return []Access{
		{Resource: "secrets", Namespace: namespace, Verbs: []string{"list", "create", "update", "patch", "delete"}, Why: "the journal"},
		{Resource: "configmaps", Namespace: namespace, Verbs: []string{"get", "create", "update"}, Why: "the report"},
		{Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace, Verbs: []string{"get", "create", "update", "watch"}, Why: "the lock"},
	}
}

// ReaderState is what a run of an OnlyReader needs there: it has no journal.
func ReaderState(namespace string) []Access {
	return []Access{
		{Resource: "configmaps", Namespace: namespace, Verbs: []string{"get", "create", "update"}, Why: "the report"},
	}
}

// PlanState is what a plan needs there. It asks whether it may read journals, and can do
// without.
func PlanState(namespace string) []Access {
	return []Access{{Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace, Verbs: []string{"get"}, Why: "whether a run was interrupted"}}
}
