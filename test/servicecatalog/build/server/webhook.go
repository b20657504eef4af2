package main

import (
	"fmt"

	"github.com/kubernetes-sigs/service-catalog/pkg/apis/servicecatalog/v1beta1"
	clusterbrokermutation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/clusterservicebroker/mutation"
	clusterbrokervalidation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/clusterservicebroker/validation"
	clusterclassmutation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/clusterserviceclass/mutation"
	clusterclassvalidation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/clusterserviceclass/validation"
	clusterplanmutation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/clusterserviceplan/mutation"
	clusterplanvalidation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/clusterserviceplan/validation"
	bindingmutation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/servicebinding/mutation"
	bindingvalidation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/servicebinding/validation"
	brokermutation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/servicebroker/mutation"
	brokervalidation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/servicebroker/validation"
	classmutation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/serviceclass/mutation"
	classvalidation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/serviceclass/validation"
	instancemutation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/serviceinstance/mutation"
	instancevalidation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/serviceinstance/validation"
	planmutation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/serviceplan/mutation"
	planvalidation "github.com/kubernetes-sigs/service-catalog/pkg/webhook/servicecatalog/serviceplan/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// handlers are those of cmd/webhook/server, by their paths there.
func handlers() map[string]admission.Handler {
	return map[string]admission.Handler{
		"/mutating-clusterservicebrokers": &clusterbrokermutation.CreateUpdateHandler{},
		"/mutating-clusterserviceclasses": &clusterclassmutation.CreateUpdateHandler{},
		"/mutating-clusterserviceplans":   &clusterplanmutation.CreateUpdateHandler{},
		"/mutating-servicebindings":       &bindingmutation.CreateUpdateHandler{},
		"/mutating-servicebrokers":        &brokermutation.CreateUpdateHandler{},
		"/mutating-serviceclasses":        &classmutation.CreateUpdateHandler{},
		"/mutating-serviceinstances":      instancemutation.NewCreateUpdateHandler(),
		"/mutating-serviceplans":          &planmutation.CreateUpdateHandler{},

		"/validating-clusterservicebrokers":        clusterbrokervalidation.NewSpecValidationHandler(),
		"/validating-clusterservicebrokers/status": &clusterbrokervalidation.StatusValidationHandler{},
		"/validating-clusterserviceclasses":        clusterclassvalidation.NewSpecValidationHandler(),
		"/validating-clusterserviceplans":          clusterplanvalidation.NewSpecValidationHandler(),
		"/validating-servicebindings":              bindingvalidation.NewSpecValidationHandler(),
		"/validating-servicebindings/status":       &bindingvalidation.StatusValidationHandler{},
		"/validating-servicebrokers":               brokervalidation.NewSpecValidationHandler(),
		"/validating-servicebrokers/status":        &brokervalidation.StatusValidationHandler{},
		"/validating-serviceclasses":               classvalidation.NewSpecValidationHandler(),
		"/validating-serviceinstances":             instancevalidation.NewSpecValidationHandler(),
		"/validating-serviceplans":                 planvalidation.NewSpecValidationHandler(),
	}
}

func runWebhook(config *rest.Config, port int, certDir string) error {
	m, err := manager.New(config, manager.Options{MetricsBindAddress: "0"})
	if err != nil {
		return err
	}
	if err := v1beta1.AddToScheme(m.GetScheme()); err != nil {
		return err
	}
	server := &webhook.Server{Host: "127.0.0.1", Port: port, CertDir: certDir}
	for path, handler := range handlers() {
		server.Register(path, &webhook.Admission{Handler: handler})
	}
	if err := m.Add(server); err != nil {
		return err
	}
	// Whether it listens already is for the client to ask.
	fmt.Println("ready")
	return m.Start(wait.NeverStop)
}
