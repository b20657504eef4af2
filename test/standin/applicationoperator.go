package standin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/test/node"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// ApplicationOperator stands in for application-operator, and is what runs in its
// pod. When it starts, it upgrades the Helm release of every Application, whatever
// version that has, one after the other and without waiting for its pods. What fails is
// not tried again until the next start: the Application is FAILED, without a
// description. From then on it installs the releases that are missing, and writes into
// each Application what Helm says of its release, every half minute. An Application with
// skipInstallation is left alone.
type ApplicationOperator struct {
	*node.Still
	// began releases are upgraded to the end.
	running sync.WaitGroup
	stop    context.CancelFunc
}

// HelmRunner runs a command of Helm.
type HelmRunner interface {
	Run(ctx context.Context, args ...string) (string, error)
}

// ApplicationOperatorOptions of StartApplicationOperator.
type ApplicationOperatorOptions struct {
	// Helm is that of the image; its environment says which cluster.
	Helm HelmRunner
	// Namespaced: its releases have namespaces, as those of Helm 3 and later. Kyma's are of Helm 2.
	Namespaced bool
	Client     dynamic.Interface
	// Chart is the folder of the per-Application chart: /application in the image.
	Chart string
	// EventServiceImage is handed to the chart.
	EventServiceImage string
	Log               func(format string, args ...any)
	// Upgraded is told of each release that was upgraded; nil: nobody is.
	Upgraded func(app string)
	// SyncPeriod is how often Applications get what Helm says; 0: 30 s.
	SyncPeriod time.Duration
}

// StartApplicationOperator starts it.
func StartApplicationOperator(ctx context.Context, o ApplicationOperatorOptions) *ApplicationOperator {
	a := &ApplicationOperator{Still: node.NewStill()}
	ctx, a.stop = context.WithCancel(ctx)
	a.running.Go(func() {
		o.each(ctx, o.upgrade)
		for ctx.Err() == nil {
			o.each(ctx, o.install)
			select {
			case <-ctx.Done():
			case <-time.After(cmp.Or(o.SyncPeriod, 30*time.Second)):
			}
			o.each(ctx, o.sync)
		}
	})
	return a
}

// each does something with every Application that has, or is to have, a release.
func (o *ApplicationOperatorOptions) each(ctx context.Context, do func(ctx context.Context, app *unstructured.Unstructured) error) {
	list, err := o.Client.Resource(Applications).List(ctx, metav1.ListOptions{})
	if err != nil {
		if ctx.Err() == nil {
			o.Log("application-operator: cannot list Applications: %v", err)
		}
		return
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	for i := range list.Items {
		app := &list.Items[i]
		if skip, _, _ := unstructured.NestedBool(app.Object, "spec", "skipInstallation"); skip || ctx.Err() != nil {
			continue
		}
		// A release that is begun is brought to its end: Helm would refuse the next
		// upgrade of one that was left in the middle.
		if err := do(context.WithoutCancel(ctx), app); err != nil && ctx.Err() == nil {
			o.Log("application-operator: Application %s: %v", app.GetName(), err)
		}
	}
}

func (o *ApplicationOperatorOptions) helm(ctx context.Context, command, app string, args ...string) error {
	_, err := o.Helm.Run(ctx, slices.Concat([]string{command}, args, []string{o.Chart, "--namespace", IntegrationNamespace, "--timeout", "4m",
		"--set", "global.eventServiceImage=" + o.EventServiceImage})...)
	if err == nil && o.Upgraded != nil {
		o.Upgraded(app)
	}
	return err
}

func (o *ApplicationOperatorOptions) upgrade(ctx context.Context, app *unstructured.Unstructured) error {
	if status, _ := o.release(ctx, app.GetName()); status == "" {
		return nil
	}
	if err := o.helm(ctx, "upgrade", app.GetName(), app.GetName()); err != nil {
		return errors.Join(err, o.setStatus(ctx, app, "FAILED", ""))
	}
	return nil
}

func (o *ApplicationOperatorOptions) install(ctx context.Context, app *unstructured.Unstructured) error {
	if status, _ := o.release(ctx, app.GetName()); status != "" {
		return nil
	}
	// Every Helm takes it, and creates the release.
	return o.helm(ctx, "upgrade", app.GetName(), "--install", app.GetName())
}

func (o *ApplicationOperatorOptions) sync(ctx context.Context, app *unstructured.Unstructured) error {
	status, description := o.release(ctx, app.GetName())
	if status == "" {
		return nil
	}
	return o.setStatus(ctx, app, status, description)
}

// release is what Helm says of an Application's release, in the words of Helm 2; "" if
// there is none.
func (o *ApplicationOperatorOptions) release(ctx context.Context, app string) (status, description string) {
	args := []string{"status", app, "--output", "json"}
	if o.Namespaced {
		args = append(args, "--namespace", IntegrationNamespace)
	}
	out, err := o.Helm.Run(ctx, args...)
	if err != nil {
		return "", ""
	}
	var release struct {
		Info struct {
			// Status is {"code": 1} with Helm 2, and "deployed" since.
			Status      json.RawMessage `json:"status"`
			Description string          `json:"description"`
		} `json:"info"`
	}
	if json.Unmarshal([]byte(out), &release) != nil {
		return "", ""
	}
	var word string
	if json.Unmarshal(release.Info.Status, &word) == nil {
		status = strings.ToUpper(strings.ReplaceAll(word, "-", "_"))
	} else {
		var number struct {
			Code uint64 `json:"code"`
		}
		_ = json.Unmarshal(release.Info.Status, &number)
		for name, code := range releaseStatus {
			if code == number.Code {
				status = name
			}
		}
	}
	if status == "DELETED" || status == "UNINSTALLED" {
		return "", ""
	}
	return status, release.Info.Description
}

// setStatus writes the status of an Application, whose kind has no status subresource.
func (o *ApplicationOperatorOptions) setStatus(ctx context.Context, app *unstructured.Unstructured, status, description string) error {
	if text(app, "status", "installationStatus", "status") == status && text(app, "status", "installationStatus", "description") == description {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"installationStatus": map[string]any{"status": status, "description": description}}})
	if err != nil {
		return err
	}
	_, err = o.Client.Resource(Applications).Patch(ctx, app.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return kubernetes.IgnoreNotFound(err)
}

// Terminate implements Container.
func (a *ApplicationOperator) Terminate() {
	a.stop()
	a.running.Wait()
	a.Still.Terminate()
}

// Kill implements Container. It ends in good order nevertheless.
func (a *ApplicationOperator) Kill() {
	a.stop()
	a.running.Wait()
	a.Still.Kill()
}
