package jobmanager

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

func parseRelease(s string) (*version.Version, error) {
	v, err := version.ParseGeneric(s)
	if err != nil {
		return nil, fmt.Errorf("%q is not a version, such as 1.12.0: %w", s, err)
	}
	return v, nil
}

// Overdue is a job whose release of removal has come.
type Overdue struct{ Job, RemoveBy, Release string }

func (e *Overdue) Error() string {
	return fmt.Sprintf("job %s must be gone from release %s on, and this is %s: delete it, its registration and its documentation", e.Job, e.RemoveBy, e.Release)
}

// Lint reports each job that must not be in the release any more.
func (m *Manager) Lint(release string) error {
	now, err := parseRelease(release)
	if err != nil {
		return fmt.Errorf("cannot check the release: %w", err)
	}
	var errs []error
	for _, job := range m.jobs {
		if job.RemoveBy == "" {
			continue
		}
		removed, err := parseRelease(job.RemoveBy)
		if err != nil {
			return err // New has refused it
		}
		if now.AtLeast(removed) {
			errs = append(errs, &Overdue{Job: job.Name(), RemoveBy: job.RemoveBy, Release: release})
		}
	}
	return errors.Join(errs...)
}
