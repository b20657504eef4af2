package decide

import (
	"encoding/json"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	eventingchart "github.com/kyma-project/eventmesh-migration/charts/eventing"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
)

// remembering renders the chart once for all scenes that have the same values: thousands of
// decisions are made here, and rendering was half of their time. Scenes change their objects, and
// so get copies.
type remembering struct {
	chart    *chart.Chart
	mu       sync.Mutex
	rendered map[string][]*unstructured.Unstructured
}

// manyRenderings bounds the memory of random worlds.
const manyRenderings = 200

var loaded = sync.OnceValues(func() (*remembering, error) {
	c, err := chart.Load(eventingchart.Chart, ".")
	return &remembering{chart: c, rendered: map[string][]*unstructured.Unstructured{}}, err
})

func (r *remembering) Render(release chart.Release, values map[string]any) ([]*unstructured.Unstructured, error) {
	raw, err := json.Marshal([]any{release, values})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	objects, known := r.rendered[string(raw)]
	if !known {
		if objects, err = r.chart.Render(release, values); err != nil {
			return nil, err
		}
		if len(r.rendered) == manyRenderings {
			clear(r.rendered)
		}
		r.rendered[string(raw)] = objects
	}
	copies := make([]*unstructured.Unstructured, len(objects))
	for i, u := range objects {
		copies[i] = u.DeepCopy()
	}
	return copies, nil
}

func rememberedChart(t *testing.T) Renderer {
	t.Helper()
	r, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return r
}
