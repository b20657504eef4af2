package decide

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/identity"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
)

// TestTheStreamFitsItsVolume: the limit of the stream follows from the volume that is there. On
// f3299ef a stream of 700Mi on a volume of 1Gi filled it before the stream was full.
func TestTheStreamFitsItsVolume(t *testing.T) {
	t.Parallel()
	d := &Rules{Identities: identity.Identities{Names: "eventing", Namespace: "kyma-system"}}
	for _, tc := range []struct {
		reason        string
		storage       operatorv1alpha1.StorageType
		asked, volume string
		claims        []string
		want, says    string
	}{
		{reason: "samples of Kyma", storage: operatorv1alpha1.StorageFile, asked: "700Mi", volume: "1Gi", want: "384Mi", says: "1747Mi"},
		{reason: "a volume that holds it", storage: operatorv1alpha1.StorageFile, asked: "700Mi", volume: "1747Mi", want: "700Mi"},
		{reason: "a large one", storage: operatorv1alpha1.StorageFile, asked: "10Gi", volume: "12Gi", want: "5952Mi", says: "20864Mi"},
		{reason: "the volumes were enlarged", storage: operatorv1alpha1.StorageFile, asked: "700Mi", volume: "1Gi", claims: []string{"2Gi", "2Gi"}, want: "700Mi"},
		{reason: "one of them was enlarged", storage: operatorv1alpha1.StorageFile, asked: "700Mi", volume: "1Gi", claims: []string{"2Gi", "1Gi"}, want: "384Mi", says: "1Gi"},
		{reason: "memory", storage: operatorv1alpha1.StorageMemory, asked: "700Mi", volume: "1Gi", want: "700Mi"},
	} {
		w := &observed.World{Eventing: &operatorv1alpha1.Eventing{Spec: operatorv1alpha1.EventingSpec{Backend: &operatorv1alpha1.Backend{Config: operatorv1alpha1.BackendConfig{
			NATSStreamStorageType: tc.storage, NATSStreamMaxSize: resource.MustParse(tc.asked), NATSStorage: operatorv1alpha1.Storage{Size: resource.MustParse(tc.volume)},
		}}}}}
		for _, size := range tc.claims {
			w.Claims = append(w.Claims, corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "data-eventing-nats-0"},
				Status:     corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
			})
		}
		want := resource.MustParse(tc.want)
		if got := wantedStream(w, "e", true).MaxBytes; got != want.Value() {
			t.Errorf("%s: the stream may have %d bytes, want %d", tc.reason, got, want.Value())
		}
		o := &Decision{world: w}
		d.size(w, o)
		c := meta.FindStatusCondition(o.Conditions, operatorv1alpha1.ConditionStreamSize)
		if limited := c.Status == metav1.ConditionFalse; limited != (tc.says != "") {
			t.Errorf("%s: %+v", tc.reason, c)
		}
		for _, text := range []string{tc.says, tc.asked, tc.want} {
			if tc.says != "" && !strings.Contains(c.Message, text) {
				t.Errorf("%s: %q does not name %s", tc.reason, c.Message, text)
			}
		}
	}
}
