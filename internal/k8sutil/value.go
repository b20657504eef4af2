package k8sutil

import "k8s.io/apimachinery/pkg/api/resource"

// SameNumber tells whether two values are one number, of whatever type: JSON has one kind of them.
func SameNumber(a, b any) bool {
	x, ok := number(a)
	y, both := number(b)
	return ok && both && x == y
}

// SameQuantity tells whether two texts are one quantity: the API server writes "1000m" as "1".
func SameQuantity(a, b string) bool {
	x, err := resource.ParseQuantity(a)
	if err != nil {
		return false
	}
	y, err := resource.ParseQuantity(b)
	return err == nil && x.Cmp(y) == 0
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	case float64:
		return v, true
	default:
		return 0, false
	}
}
