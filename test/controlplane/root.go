package controlplane

// ModuleRoot is the directory of the product's go.mod, for packages that build what lies beside it.
func ModuleRoot() (string, error) { return moduleRoot() }
