package migration

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Orphaner is a job that deletes owners and spares what they own: the pods of a
// StatefulSet that is about to be created again.
type Orphaner interface {
	// Orphans says whether what belongs to the object stays when it is deleted, by
	// the run or by its rollback.
	Orphans(ref Ref) bool
}

// propagation says what becomes of the objects that belong to one that is deleted.
func (r *run) propagation(ref Ref) *metav1.DeletionPropagation {
	if o, ok := r.job.(Orphaner); ok && o.Orphans(ref) {
		return new(metav1.DeletePropagationOrphan)
	}
	return new(metav1.DeletePropagationBackground)
}
