package migration

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// PositiveSetting refuses a limit that would end before it began.
func PositiveSetting(flag string, limit time.Duration) error {
	if limit > 0 {
		return nil
	}
	return fmt.Errorf("--%s must be positive, not %s", flag, limit)
}

// NamespaceSetting refuses what cannot be the name of a namespace: see
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names.
func NamespaceSetting(flag, name string) error {
	return nameSetting(flag, name, "namespace", validation.IsDNS1123Label(name))
}

// OptionalNamespaceSetting accepts an empty name, too: there is no such namespace.
func OptionalNamespaceSetting(flag, name string) error {
	if name == "" {
		return nil
	}
	return NamespaceSetting(flag, name)
}

// NameSetting refuses what cannot be the name of an object of most kinds.
func NameSetting(flag, name, kind string) error {
	return nameSetting(flag, name, kind, validation.IsDNS1123Subdomain(name))
}

func nameSetting(flag, name, kind string, why []string) error {
	if len(why) == 0 {
		return nil
	}
	return fmt.Errorf("--%s %q is not the name of a %s: %s", flag, name, kind, strings.Join(why, "; "))
}
