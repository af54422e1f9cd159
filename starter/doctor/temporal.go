package doctor

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"belay.run/activities"
	"belay.run/internal/config"
	"belay.run/workflows"
)

const (
	// retentionLeast is how far back the janitor looks for runs that closed.
	retentionLeast = 7 * 24 * time.Hour
	// passesMissed is how many passes of the janitor may be missing, and late how
	// late one may be at least.
	passesMissed = 4
	late         = 2 * time.Minute
)

func (d *doctor) checkTemporal(ctx context.Context) Check {
	t, err := d.temporal()
	if err != nil {
		return temporalAway(err)
	}
	info, err := t.Client.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	if err != nil {
		c := bad("is it running, and is TEMPORAL_ADDRESS right?", "%s", oneLine(err))
		c.Unreachable = true
		return c
	}
	return good("%s answers, version %s", cmp.Or(t.Address, "it"), cmp.Or(info.GetServerVersion(), "unknown"))
}

func temporalAway(err error) Check {
	if noNamespace(err) {
		return good("it answers")
	}
	c := bad("docs/configuration.md says how Temporal is found", "%s", oneLine(err))
	if server, ok := errors.AsType[*config.UnreachableError](err); ok {
		c = bad(server.Check, "%s: %s", server.Address, oneLine(server.Err))
	}
	_, wrong := errors.AsType[*config.SettingError](err)
	c.Unreachable = !wrong
	return c
}

func noNamespace(err error) bool {
	var unknown *serviceerror.NamespaceNotFound
	var notFound *serviceerror.NotFound
	return errors.As(err, &unknown) || errors.As(err, &notFound)
}

func (d *doctor) checkNamespace(ctx context.Context) Check {
	if _, err := d.temporal(); noNamespace(err) {
		return bad("set TEMPORAL_NAMESPACE to one that is there, or make it: temporal operator namespace create --retention 30d --namespace NAME", "%s", oneLine(err))
	}
	service, name, err := d.service()
	if err != nil {
		return unknown(err, "")
	}
	resp, err := service.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: name})
	if _, denied := errors.AsType[*serviceerror.PermissionDenied](err); denied {
		return good("%s, at which this user may not look closer", name)
	}
	if err != nil {
		return unknown(err, "is TEMPORAL_NAMESPACE right?")
	}
	if state := resp.GetNamespaceInfo().GetState(); state == enumspb.NAMESPACE_STATE_DELETED || state == enumspb.NAMESPACE_STATE_DEPRECATED {
		return bad("use another namespace", "%s is %s", name, state)
	}
	keeps := resp.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration()
	if keeps > 0 && keeps < retentionLeast {
		return advised("the janitor looks 7 days back for runs that closed without a word: temporal operator namespace update --retention 30d --namespace "+name,
			"%s keeps closed runs for %s only", name, keeps)
	}
	return good("%s keeps closed runs for %s", name, keeps)
}

// attributes are the search attributes that Belay sets.
func attributes() []string {
	return []string{workflows.AttrTenant, workflows.AttrProject, workflows.AttrPipeline, workflows.AttrStatus, workflows.AttrDedupKey}
}

func (d *doctor) checkAttributes(ctx context.Context) Check {
	service, namespace, err := d.service()
	if err != nil {
		return unknown(err, "")
	}
	t, err := d.temporal()
	if err != nil {
		return unknown(err, "")
	}
	have, err := t.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return askedFor(ctx, service, namespace) // not everybody may use that service
	}
	var missing []string
	for _, name := range attributes() {
		switch kind, ok := have.GetCustomAttributes()[name]; {
		case !ok:
			missing = append(missing, name)
		case kind != enumspb.INDEXED_VALUE_TYPE_KEYWORD:
			return bad("remove it and make it again as a Keyword, or use another namespace", "%s is of the type %s", name, kind)
		}
	}
	return attributesFound(missing)
}

// askedFor finds out by a query for each whether Temporal knows the attributes.
func askedFor(ctx context.Context, service workflowservice.WorkflowServiceClient, namespace string) Check {
	var missing []string
	for _, name := range attributes() {
		_, err := service.CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: namespace, Query: name + " = 'doctor'",
		})
		_, invalid := errors.AsType[*serviceerror.InvalidArgument](err)
		switch {
		case invalid:
			missing = append(missing, name)
		case err != nil:
			return unknown(err, "may this user list workflows?")
		}
	}
	return attributesFound(missing)
}

func attributesFound(missing []string) Check {
	if len(missing) == 0 {
		return good("all %d are there", len(attributes()))
	}
	return bad("temporal operator search-attribute create --type Keyword --name "+strings.Join(missing, " --type Keyword --name "),
		"missing: %s", strings.Join(missing, ", "))
}

func (d *doctor) checkJanitor(ctx context.Context) Check {
	service, namespace, err := d.service()
	if err != nil {
		return unknown(err, "")
	}
	s, err := service.DescribeSchedule(ctx, &workflowservice.DescribeScheduleRequest{Namespace: namespace, ScheduleId: activities.JanitorSchedule})
	_, none := errors.AsType[*serviceerror.NotFound](err)
	switch {
	case none:
		return bad("start a worker: it makes the schedule, unless its janitor is off (BELAY_JANITOR)", "there is no schedule %s", activities.JanitorSchedule)
	case err != nil:
		return unknown(err, "may this user look at schedules?")
	case s.GetSchedule().GetState().GetPaused():
		return bad("temporal schedule toggle --unpause --reason done --schedule-id "+activities.JanitorSchedule,
			"the schedule %s is paused: %s", activities.JanitorSchedule, cmp.Or(s.GetSchedule().GetState().GetNotes(), "nobody said why"))
	}
	every := late
	if intervals := s.GetSchedule().GetSpec().GetInterval(); len(intervals) > 0 {
		every = intervals[0].GetInterval().AsDuration()
	}
	last := s.GetInfo().GetCreateTime().AsTime()
	for _, a := range s.GetInfo().GetRecentActions() {
		if at := a.GetActualTime().AsTime(); at.After(last) {
			last = at
		}
	}
	ago := max(0, d.cfg.Now().Sub(last)).Round(time.Second)
	if ago > max(passesMissed*every, late) {
		return bad("does a worker take from belay-workflows? a pass that hangs keeps others from starting: look for belay-janitor in Temporal's UI",
			"every %s, but the last pass began %s ago", every, ago)
	}
	return good("every %s, the last pass began %s ago", every, ago)
}

// oneLine is an error as a line has room for it.
func oneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
