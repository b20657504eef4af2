package servicecatalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	mutatingName   = "service-catalog-webhook"
	validatingName = "service-catalog-validating-webhook"
)

// kinds have a mutating and a validating webhook each; statuses are those whose status is
// validated, too.
var (
	kinds = []string{
		"clusterservicebrokers", "clusterserviceclasses", "clusterserviceplans",
		"servicebindings", "servicebrokers", "serviceclasses", "serviceinstances", "serviceplans",
	}
	statuses = []string{"clusterservicebrokers", "servicebindings", "servicebrokers"}
)

// register lets the API server ask the webhook server at url, as the chart does, at the version of
// the registration that is served today. The server itself still speaks v1beta1 of the reviews
// only.
func (c *Catalog) register(ctx context.Context, url string) error {
	one := func(kind, path string) (admissionv1.WebhookClientConfig, []admissionv1.RuleWithOperations) {
		operations := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
		if strings.HasSuffix(kind, "/status") {
			operations = operations[1:]
		}
		return admissionv1.WebhookClientConfig{URL: new(url + path + kind), CABundle: c.certificate},
			[]admissionv1.RuleWithOperations{{Operations: operations, Rule: admissionv1.Rule{
				APIGroups: []string{"servicecatalog.k8s.io"}, APIVersions: []string{"v1beta1"}, Resources: []string{kind},
			}}}
	}
	mutating := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: mutatingName}}
	validating := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: validatingName}}
	for _, kind := range kinds {
		config, rules := one(kind, "/mutating-")
		mutating.Webhooks = append(mutating.Webhooks, admissionv1.MutatingWebhook{
			Name: "mutating." + kind + ".servicecatalog.k8s.io", ClientConfig: config, Rules: rules,
			AdmissionReviewVersions: []string{"v1beta1"}, SideEffects: new(admissionv1.SideEffectClassNone),
			FailurePolicy: new(admissionv1.Fail), MatchPolicy: new(admissionv1.Exact),
		})
	}
	for _, kind := range slices.Concat(kinds, statuses) {
		name := "validating." + kind
		if i := len(validating.Webhooks); i >= len(kinds) {
			kind += "/status"
			name = "validating.status." + strings.TrimSuffix(kind, "/status")
		}
		config, rules := one(kind, "/validating-")
		validating.Webhooks = append(validating.Webhooks, admissionv1.ValidatingWebhook{
			Name: name + ".servicecatalog.k8s.io", ClientConfig: config, Rules: rules,
			AdmissionReviewVersions: []string{"v1beta1"}, SideEffects: new(admissionv1.SideEffectClassNone),
			FailurePolicy: new(admissionv1.Fail), MatchPolicy: new(admissionv1.Exact),
		})
	}

	// Deleted first: two writes that need no resource version.
	if err := c.unregister(ctx); err != nil {
		return err
	}
	api := c.client.AdmissionregistrationV1()
	if _, err := api.MutatingWebhookConfigurations().Create(ctx, mutating, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot register the webhooks: %w", err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Create(ctx, validating, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot register the webhooks: %w", err)
	}
	return nil
}

func (c *Catalog) unregister(ctx context.Context) error {
	api := c.client.AdmissionregistrationV1()
	for _, err := range []error{
		api.MutatingWebhookConfigurations().Delete(ctx, mutatingName, metav1.DeleteOptions{}),
		api.ValidatingWebhookConfigurations().Delete(ctx, validatingName, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot remove the webhooks: %w", err)
		}
	}
	return nil
}
