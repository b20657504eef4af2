package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// webhook is one webhook of a configuration. Validating and mutating ones have the same fields,
// as far as they are read here.
type webhook struct {
	admissionv1.ValidatingWebhook
	// configuration is "ValidatingWebhookConfiguration name".
	configuration string
	// down is why its Service cannot answer, "" if it can, or if that is not known.
	down string
}

// webhooks are all of a cluster, and the labels of its namespaces, nil if they are unknown.
type webhooks struct {
	all        []webhook
	namespaces map[string]labels.Set
	// unreadable are those that cannot be decoded.
	unreadable []migration.Finding
}

// webhooks checks those that are asked before a write of the rows. found has all namespaces,
// nil if they are unknown.
func (r *Result) webhooks(ctx context.Context, c *migration.Cluster, found map[string]*unstructured.Unstructured, rows []migration.Access) error {
	w := &webhooks{}
	if found != nil {
		w.namespaces = map[string]labels.Set{}
	}
	for name, u := range found {
		w.namespaces[name] = u.GetLabels()
	}
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		if err := r.unlessForbidden("webhooks", w.read(ctx, c, kind)); err != nil {
			return err
		}
	}
	var unknown error
	for i := range w.all {
		var err error
		if w.all[i].down, err = serviceDown(ctx, c, w.all[i].ClientConfig.Service); apierrors.IsForbidden(err) {
			unknown = err
		} else if err != nil {
			return err
		}
	}
	r.Findings = append(append(r.Findings, w.unreadable...), w.judge(rows)...)
	return r.unlessForbidden("Services of webhooks", unknown)
}

// read adds the webhooks of the configurations of a kind.
func (w *webhooks) read(ctx context.Context, c *migration.Cluster, kind string) error {
	resource, served, err := c.Served(ctx, schema.GroupKind{Group: admissionv1.GroupName, Kind: kind})
	if err != nil || !served {
		return err
	}
	return c.Each(ctx, resource, "", migration.ListOptions{}, func(u *unstructured.Unstructured) error {
		w.add(resource, u)
		return nil
	})
}

// add takes the webhooks of a configuration one by one: what cannot be decoded hides no other.
func (w *webhooks) add(resource migration.Resource, u *unstructured.Unstructured) {
	configuration := resource.Kind + " " + u.GetName()
	odd := func(problem string) {
		w.unreadable = append(w.unreadable, migration.Finding{
			ID: "check-webhook-unreadable", Severity: migration.Warning, Object: configuration,
			Problem: problem + ". Whether the API server asks it before a write of the jobs is unknown",
			Note:    "Correct that field. Then check again.",
			Command: migration.CommandLine("kubectl", "edit", resource.Resource, u.GetName()),
		})
	}
	hooks, isList := u.Object["webhooks"].([]any)
	if !isList && u.Object["webhooks"] != nil {
		odd("webhooks is not a list")
	}
	for i, hook := range hooks {
		one := webhook{configuration: configuration}
		raw, err := json.Marshal(hook)
		if err == nil {
			err = json.Unmarshal(raw, &one.ValidatingWebhook)
		}
		at := fmt.Sprintf("webhooks[%d]", i)
		switch typed, ok := errors.AsType[*json.UnmarshalTypeError](err); {
		case ok:
			odd(fmt.Sprintf("%s must not be of type %s", strings.TrimSuffix(at+"."+typed.Field, "."), typed.Value))
		case err != nil:
			odd(at + " cannot be read: " + err.Error())
		default:
			w.all = append(w.all, one)
		}
	}
}

// serviceDown says why a Service cannot answer.
func serviceDown(ctx context.Context, c *migration.Cluster, service *admissionv1.ServiceReference) (string, error) {
	if service == nil {
		return "", nil // a URL, which is asked by the API server, not from here
	}
	get := func(plural, kind string) (*unstructured.Unstructured, error) {
		return c.Get(ctx, migration.Ref{Resource: migration.CoreResource("", plural, kind), Namespace: service.Namespace, Name: service.Name})
	}
	name := service.Namespace + "/" + service.Name
	switch found, err := get("services", "Service"); {
	case err != nil:
		return "", err
	case found == nil:
		return "its Service " + name + " does not exist", nil
	}
	found, err := get("endpoints", "Endpoints")
	if err != nil {
		return "", err
	}
	if found != nil {
		subsets, _ := found.Object["subsets"].([]any)
		for _, s := range subsets {
			subset, _ := s.(map[string]any)
			if addresses, _ := subset["addresses"].([]any); len(addresses) > 0 {
				return "", nil
			}
		}
	}
	return "its Service " + name + " has no ready endpoints", nil
}

// judge returns what is wrong with the webhooks that the API server asks before a write of these
// rows.
func (w *webhooks) judge(rows []migration.Access) []migration.Finding {
	var found []migration.Finding
	for i := range w.all {
		hook := &w.all[i]
		resource := w.matches(hook, rows)
		if resource == "" {
			continue
		}
		f := migration.Finding{Object: hook.configuration}
		if hook.down != "" {
			f.ID, f.Severity = "check-webhook-down", migration.Error
			f.Problem = fmt.Sprintf("webhook %s refuses %s: %s", hook.Name, resource, hook.down)
			f.Note = "Start the pods of the webhook. Then check again."
			if hook.FailurePolicy != nil && *hook.FailurePolicy == admissionv1.Ignore {
				f.ID, f.Severity = "check-webhook-slow", migration.Warning
				f.Problem = fmt.Sprintf("webhook %s delays writes of %s: %s", hook.Name, resource, hook.down)
			}
			f.Command = migration.CommandLine("kubectl", "-n", hook.ClientConfig.Service.Namespace, "get", "services,endpoints,pods")
			found = append(found, f)
		}
		if hook.SideEffects != nil && (*hook.SideEffects == admissionv1.SideEffectClassSome || *hook.SideEffects == admissionv1.SideEffectClassUnknown) {
			f.ID, f.Severity, f.Command = "check-webhook-dry-run", migration.Info, ""
			f.Problem = fmt.Sprintf("webhook %s has side effects, so dry runs of %s are refused", hook.Name, resource)
			f.Note = "Nothing to do: a job that cannot do a dry run continues without it."
			found = append(found, f)
		}
	}
	return found
}

var operations = map[string]admissionv1.OperationType{
	"create": admissionv1.Create, "update": admissionv1.Update, "patch": admissionv1.Update, "delete": admissionv1.Delete,
}

// matches returns the first resource of the rows whose writes the webhook is asked about, ""
// if there is none.
func (w *webhooks) matches(hook *webhook, rows []migration.Access) string {
	has := func(list []string, words ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(words, s) })
	}
	for _, rule := range hook.Rules {
		for _, row := range rows {
			writes := slices.ContainsFunc(row.Verbs, func(verb string) bool {
				operation, ok := operations[verb]
				return ok && (slices.Contains(rule.Operations, operation) || slices.Contains(rule.Operations, admissionv1.OperationAll))
			})
			if writes && has(rule.APIGroups, "*", row.Group) && has(rule.Resources, "*", "*/*", row.Resource, row.Resource+"/*") && w.inNamespaces(hook.NamespaceSelector, row.Namespace) {
				return strings.TrimSuffix(row.Resource+"."+row.Group, ".")
			}
		}
	}
	return ""
}

// inNamespaces says whether a selector selects the namespace, or any if that is "".
func (w *webhooks) inNamespaces(selector *v1.LabelSelector, namespace string) bool {
	selects, err := v1.LabelSelectorAsSelector(selector)
	if selector == nil || err != nil || selects.Empty() || w.namespaces == nil {
		return true
	}
	for name, of := range w.namespaces {
		if (namespace == "" || name == namespace) && selects.Matches(of) {
			return true
		}
	}
	return false
}
