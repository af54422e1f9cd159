package api

import (
	"errors"
	"net/http"

	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// allowed refuses a task that names a secret which its tenant may not use. Where
// it may be sent is held when it is: the task fails then.
func (c *call) allowed(t *task.Task) error {
	for _, name := range c.Types.Secrets(*t) {
		err := c.Secrets.Granted(t.Origin.Tenant, name)
		if _, refused := errors.AsType[*secret.RefusedError](err); err != nil && !refused {
			return problemf(http.StatusBadRequest, "invalid_task", "%s", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// linesOf checks the tasks of a tenant's batch, their secrets too, so that a batch
// of which none would be done does not start.
type linesOf struct {
	*call

	tenant string
}

// Prepare checks a task.
func (l *linesOf) Prepare(t task.Task) (task.Job, error) {
	job, err := l.Types.Prepare(t)
	if err != nil {
		return nil, err
	}
	t.Origin.Tenant = l.tenant
	return job, l.allowed(&t)
}
