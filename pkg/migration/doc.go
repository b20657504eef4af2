// Package migration is the vocabulary of a migration job: what a job says, and what it
// sees of the cluster. It cannot write.
//
// A [Job] reads the cluster through a [Cluster], which refuses every write, and returns a
// [Plan]: the changes that are left to make, in [Unit] values, and what a person should
// know, as [Finding] values. Package engine carries the plan out. It writes a journal
// first, it waits for the [Condition] values that the job names, it rolls a failed run
// back, and it lets the next run finish a killed one.
//
// A plan must depend on the cluster alone. A job that was killed, or that ran last year,
// is run again, and what is done already must not be in its plan:
//
//	func (j *Job) Plan(ctx context.Context, c *migration.Cluster, o migration.PlanOptions) (*migration.Plan, error) {
//		all, err := c.List(ctx, ingresses, "", migration.ListOptions{})
//		if err != nil {
//			return nil, err
//		}
//		plan := &migration.Plan{Parallelism: 10}
//		for _, ingress := range all {
//			class := ingress.GetAnnotations()["kubernetes.io/ingress.class"]
//			if class == "" {
//				continue // nothing to do
//			}
//			plan.Units = append(plan.Units, migrate(ingress, class))
//		}
//		return plan, nil
//	}
//
// A job may be more than a Job: see the table above [Rechecker] for the interfaces that
// the engine looks for.
package migration
