package command

import (
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
)

// connect returns how to reach the API server, and where that was read, for
// people. It does not call the server. Errors are those of the call of this
// process: a flag or a file to correct.
func (p *process) connect(o *options) (cfg *rest.Config, source string, err error) {
	way, err := o.place.Connect(p.Env, p.inCluster, frame.UserAgent(p.job.Name(), p.program.Version, p.program.Project))
	if err != nil {
		return nil, "", err
	}
	p.context, p.user = way.Context, way.User
	return way.Config, way.Source, nil
}
