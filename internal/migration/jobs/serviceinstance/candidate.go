package serviceinstance

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// candidate is a ServiceInstance of a service with events.
type candidate struct {
	obj   *unstructured.Unstructured
	state kyma.Instance
	// class and plan; plan is nil if the instance has none, or it is gone.
	class, plan *unstructured.Unstructured
	application string
	service     kyma.AppService
	// packages: the class is an Application, and its plans are the services.
	packages bool
	// lacks is what of the mesh is missing, in words.
	lacks []string
	// broken is why no repair can help, "" if one can.
	broken string
}

func (c *candidate) namespace() string { return c.obj.GetNamespace() }
func (c *candidate) pair() pair        { return pair{c.application, c.namespace()} }
func (c *candidate) activation() id    { return id{c.namespace(), c.service.ID} }

// problem is why something cannot be done, and what to do about it.
type problem struct {
	id       string
	severity migration.Severity
	what     string
	advice   migration.Advice
}

// offering is a service of an Application, as application-broker lists it in its catalogue.
type offering struct {
	application string
	service     kyma.AppService
	packages    bool
}

// candidateOf says which service of which Application an instance is of. It
// returns nil and no problem for what is no concern of this job.
func (d *decision) candidateOf(obj *unstructured.Unstructured) (*candidate, *problem) {
	class, why := d.classOf(obj)
	if class == nil {
		return nil, why
	}
	plan, why := d.planOf(obj, class)
	var offerings []offering
	for _, o := range d.offerings[specOf(class, "externalID")] {
		if !o.packages || plan != nil && specOf(plan, "externalID") == o.service.ID {
			offerings = append(offerings, o)
		}
	}
	if len(offerings) == 0 {
		if why != nil && len(d.offerings[specOf(class, "externalID")]) > 0 {
			return nil, why // which service it is, is told by the plan
		}
		return nil, nil
	}
	if len(offerings) > 1 {
		mapped := slices.DeleteFunc(slices.Clone(offerings), func(o offering) bool {
			mapping := d.mappings[id{obj.GetNamespace(), o.application}]
			return mapping == nil || !kyma.Enables(mapping, o.service.ID)
		})
		if len(mapped) == 1 {
			offerings = mapped
		}
	}
	c := &candidate{
		obj: obj, state: kyma.InstanceOf(obj), class: class, plan: plan,
		application: offerings[0].application, service: offerings[0].service, packages: offerings[0].packages,
	}
	if !slices.ContainsFunc(offerings, func(o offering) bool { return o.service.Events }) {
		return nil, nil
	}
	if len(offerings) > 1 {
		names := make([]string, len(offerings))
		for i, o := range offerings {
			names[i] = o.application
		}
		return nil, &problem{
			"service-ambiguous", migration.Error, fmt.Sprintf("its service %q is one of several Applications, and nothing says which: %s", c.service.ID, strings.Join(names, ", ")),
			leaveOut(obj, "Give each service an ID of its own. Or leave one ApplicationMapping for it in the namespace."),
		}
	}
	return c, nil
}

// classOf returns the class of an instance if application-broker provides it.
// The class tells by its externalID, and not by its name, what it is of: names
// are escaped.
func (s *snapshot) classOf(obj *unstructured.Unstructured) (*unstructured.Unstructured, *problem) {
	var matches func(*unstructured.Unstructured) bool
	ref := specOf(obj, "serviceClassRef", "name")
	switch {
	case ref != "":
		matches = func(class *unstructured.Unstructured) bool { return class.GetName() == ref }
	case specOf(obj, "serviceClassName") != "":
		matches = func(class *unstructured.Unstructured) bool { return class.GetName() == specOf(obj, "serviceClassName") }
	case specOf(obj, "serviceClassExternalID") != "":
		matches = func(class *unstructured.Unstructured) bool {
			return specOf(class, "externalID") == specOf(obj, "serviceClassExternalID")
		}
	case specOf(obj, "serviceClassExternalName") != "":
		matches = func(class *unstructured.Unstructured) bool {
			return specOf(class, "externalName") == specOf(obj, "serviceClassExternalName")
		}
	default:
		return nil, nil // a cluster-wide class: application-broker has none
	}
	var found []*unstructured.Unstructured
	for _, class := range s.classes[obj.GetNamespace()] {
		if matches(class) && specOf(class, "serviceBrokerName") == kyma.ApplicationBroker {
			found = append(found, class)
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	}
	return nil, &problem{
		"service-ambiguous", migration.Error, fmt.Sprintf("its ServiceClass is ambiguous: %s", names(found)),
		leaveOut(obj, "Name the class by its external ID in the spec of the ServiceInstance."),
	}
}

// planOf returns the plan of an instance, or why it cannot be told.
func (s *snapshot) planOf(obj, class *unstructured.Unstructured) (*unstructured.Unstructured, *problem) {
	ref, name := specOf(obj, "servicePlanRef", "name"), specOf(obj, "servicePlanName")
	externalID, externalName := specOf(obj, "servicePlanExternalID"), specOf(obj, "servicePlanExternalName")
	var found []*unstructured.Unstructured
	for _, plan := range s.plans[obj.GetNamespace()] {
		if specOf(plan, "serviceClassRef", "name") != class.GetName() {
			continue
		}
		var matches bool
		switch {
		case ref != "":
			matches = plan.GetName() == ref
		case name != "":
			matches = plan.GetName() == name
		case externalID != "":
			matches = specOf(plan, "externalID") == externalID
		case externalName != "":
			matches = specOf(plan, "externalName") == externalName
		default:
			matches = true
		}
		if matches {
			found = append(found, plan)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, &problem{
			"service-plan-missing", migration.Error, "its ServicePlan does not exist any more: it could not be provisioned again",
			leaveOut(obj, "Enable the service again in an ApplicationMapping of the namespace. Or delete the ServiceInstance."),
		}
	}
	return nil, &problem{
		"service-ambiguous", migration.Error, fmt.Sprintf("its ServicePlan is ambiguous: %s", names(found)),
		leaveOut(obj, "Name the plan by its external ID in the spec of the ServiceInstance."),
	}
}

func names(all []*unstructured.Unstructured) string {
	return strings.Join(idNames(all), ", ")
}

// offeringsOf lists the services of Applications by the external ID of their class:
// the service's own ID, or with API packages the Application's, whose plans are
// the services then.
func offeringsOf(applications []*unstructured.Unstructured) map[string][]offering {
	all := map[string][]offering{}
	for _, app := range applications {
		compass := kyma.CompassID(app)
		for _, service := range kyma.ServicesOf(app) {
			if service.ID == "" {
				continue
			}
			all[service.ID] = append(all[service.ID], offering{app.GetName(), service, false})
			if compass != "" && compass != service.ID {
				all[compass] = append(all[compass], offering{app.GetName(), service, true})
			}
		}
	}
	return all
}
