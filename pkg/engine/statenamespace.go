package engine

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// stateNamespaceError says that there is no place for the Lease and the journal.
type stateNamespaceError struct {
	namespace string
	// terminating: it is being deleted. Otherwise it does not exist, and could not be
	// created.
	terminating bool
	err         error
}

func (e *stateNamespaceError) Error() string {
	if e.terminating {
		return fmt.Sprintf("the state namespace %s is being deleted", e.namespace)
	}
	return fmt.Sprintf("the state namespace %s does not exist, and this account cannot create it: %v", e.namespace, e.err)
}

func (e *stateNamespaceError) Unwrap() error { return e.err }

func (e *stateNamespaceError) advice() migration.Advice {
	if e.terminating {
		return migration.Advice{
			Note:    "Wait until it is gone. Then run the job again. If it stays, its conditions name what holds it.",
			Command: migration.Kubectl("", "wait", "--for=delete", "namespace/"+e.namespace, "--timeout=5m"),
		}
	}
	return migration.Advice{Note: "Create it. Then run the job again.", Command: createNamespace(e.namespace)}
}

func createNamespace(name string) string { return migration.Kubectl("", "create", "namespace", name) }

// makeStateNamespace creates the state namespace, for the answer that refused an object
// in it.
func (e *Engine) makeStateNamespace(ctx context.Context, refused error) error {
	name := e.opts.StateNamespace
	if !apierrors.IsNotFound(refused) {
		return k8sutil.Permanent(&stateNamespaceError{namespace: name, terminating: true, err: refused})
	}
	_, err := e.core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			"app.kubernetes.io/name": e.opts.Names.Program,
			// No pod runs here.
			"pod-security.kubernetes.io/enforce": "restricted",
		},
	}}, metav1.CreateOptions{})
	switch {
	case err == nil:
		e.opts.Log.Info("created the state namespace", zap.String("namespace", name))
		return nil
	case apierrors.IsAlreadyExists(err):
		return nil // another run was quicker
	case k8sutil.RefusalOf(err).Kind != k8sutil.NoPermission:
		return fmt.Errorf("cannot create the state namespace %s: %w", name, err)
	}
	return k8sutil.Permanent(&stateNamespaceError{namespace: name, err: err})
}

// CreateStateNamespace creates the state namespace if it does not exist: for the first
// hook of a chart, before any Role in it. Nothing else is read or written.
func (e *Engine) CreateStateNamespace(ctx context.Context, job migration.Job) *migration.Report {
	r := e.begin("create-state-namespace", job)
	ctx, cancel := limited(ctx, e.opts.Timeout, "it", "--timeout")
	defer cancel()
	out := r.ensureStateNamespace(ctx)
	r.log.Info("finished", zap.String("result", string(out.result)), zap.String("summary", out.message))
	return r.reporter.snapshot(out)
}

func (r *run) ensureStateNamespace(ctx context.Context) outcome {
	name := r.engine.opts.StateNamespace
	created := false
	ensure := func(ctx context.Context) error {
		namespace, err := r.engine.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			err = r.engine.makeStateNamespace(ctx, err)
			created = err == nil
			return err
		case err == nil && namespace.Status.Phase == corev1.NamespaceTerminating:
			return k8sutil.Permanent(&stateNamespaceError{namespace: name, terminating: true, err: errors.New("its phase is Terminating")})
		}
		return err
	}
	err := r.grant.Do(ctx, func(ctx context.Context) error { return r.engine.read(ctx, ensure) })
	switch {
	case err != nil:
		return r.explain.nothingChanged(ctx, err)
	case created:
		return outcome{result: migration.Succeeded, message: fmt.Sprintf("Namespace %s is created", name)}
	}
	return outcome{result: migration.NothingToDo, message: fmt.Sprintf("Namespace %s exists", name)}
}
