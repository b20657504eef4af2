package kyma

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/test/helm"
)

// ApplicationOperator stands in for application-operator, and is what runs in its
// pod. When it starts, it upgrades the Helm release of every Application, whatever
// version that has, one after the other and without waiting for its pods; it
// installs the releases that are missing. An Application with skipInstallation is
// left alone. What fails is logged, and not tried again until the next start.
type ApplicationOperator struct {
	*Still
	// began releases are upgraded to the end.
	running sync.WaitGroup
	stop    context.CancelFunc
}

// ApplicationOperatorOptions of StartApplicationOperator.
type ApplicationOperatorOptions struct {
	// Helm is that of the image; its environment says which cluster.
	Helm   *helm.Helm
	Client dynamic.Interface
	// Chart is the folder of the per-Application chart: /application in the image.
	Chart string
	// EventServiceImage is handed to the chart.
	EventServiceImage string
	Log               func(format string, args ...any)
	// Upgraded is told of each release that was upgraded; nil: nobody is.
	Upgraded func(app string)
}

// StartApplicationOperator starts it.
func StartApplicationOperator(ctx context.Context, o ApplicationOperatorOptions) *ApplicationOperator {
	a := &ApplicationOperator{Still: NewStill()}
	ctx, a.stop = context.WithCancel(ctx)
	a.running.Go(func() {
		if err := upgradeReleases(ctx, &o); err != nil && ctx.Err() == nil {
			o.Log("application-operator: %v", err)
		}
	})
	return a
}

func upgradeReleases(ctx context.Context, o *ApplicationOperatorOptions) error {
	list, err := o.Client.Resource(Applications).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list Applications: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	for i := range list.Items {
		app := list.Items[i].GetName()
		if skip, _, _ := unstructured.NestedBool(list.Items[i].Object, "spec", "skipInstallation"); skip {
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		// A release that is begun is brought to its end: Helm would refuse the next
		// upgrade of one that was left in the middle.
		_, err := o.Helm.Run(context.WithoutCancel(ctx), "upgrade", "--install", app, o.Chart, "--namespace", IntegrationNamespace, "--timeout", "4m",
			"--set", "global.eventServiceImage="+o.EventServiceImage)
		if err != nil {
			o.Log("application-operator: Application %s: %v", app, err)
			continue
		}
		if o.Upgraded != nil {
			o.Upgraded(app)
		}
	}
	return nil
}

// Terminate implements Container.
func (a *ApplicationOperator) Terminate() {
	a.stop()
	a.running.Wait()
	a.Still.Terminate()
}

// Kill implements Container. It ends in good order all the same.
func (a *ApplicationOperator) Kill() {
	a.stop()
	a.running.Wait()
	a.Still.Kill()
}
