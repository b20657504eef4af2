// Package k8sobject reads objects of any kind as the API server shows them: their fields, their
// conditions, and the labels by which deployment tools claim them. It decides nothing and calls
// nothing.
package k8sobject

// MapAt returns the object at the keys, one inside of the other, without copying;
// nil if anything on the way is missing or of another type.
func MapAt(m map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		m, _ = m[key].(map[string]any)
	}
	return m
}

// Text returns a string, "" for any other type.
func Text(v any) string {
	s, _ := v.(string)
	return s
}

// Integer takes numbers as they are decoded from JSON, and as they are converted.
func Integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), true
	default:
		return 0, false
	}
}
