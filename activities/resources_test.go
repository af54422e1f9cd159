package activities_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"belay.run/activities"
	"belay.run/internal/proc"
	"belay.run/internal/redistest"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/workspace"
)

// provider is a credential provider that writes down what it is asked for.
const provider = `#!/bin/sh
echo "$1 $2 $3" >> "%[1]s"
case "$1" in
issue) printf '{"id": "lease-7", "value": "issued-s3cr3t"}' ;;
revoke) exit 3 ;;
esac
`

func newResources(t *testing.T, w *workspace.Host, p *proc.Host, s secrets) *activities.Resources {
	t.Helper()
	dir := t.TempDir()
	records, err := resource.OpenRecords(filepath.Join(w.Dir(), "resources"))
	require.NoError(t, err)
	script := filepath.Join(dir, "provider")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, provider, filepath.Join(dir, "asked")), 0o700))
	return activities.NewResources(activities.ResourcesConfig{
		Host: w, Proc: p, Secrets: s, Environment: []string{"PATH=" + os.Getenv("PATH")}, Records: records,
		Kinds: []resource.Kind{
			resource.NewPorts(filepath.Join(dir, "ports"), 24000, 24999, w.Boot()), activities.TempDirs(w),
			&resource.Credentials{Providers: map[string][]string{"vault": {script}}},
		},
	})
}

// asked is what the provider of credentials was asked for.
func (h *host) asked(t *testing.T) string {
	t.Helper()
	for _, k := range h.resources.Kinds {
		if c, ok := k.(*resource.Credentials); ok {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(c.Providers["vault"][0]), "asked"))
			require.NoError(t, err)
			return string(text)
		}
	}
	return ""
}

func holding(list ...spec.Resource) func(*activities.StepInput) {
	return func(in *activities.StepInput) {
		in.Step.Resources = list
		in.Holder = resource.Owner{RunKey: "k1", WorkflowID: "acme/web/shop/r/1", Tenant: "acme", Project: "web"}
		in.Release = time.Minute
	}
}

func custom(name, acquire, release string) spec.Resource {
	return spec.Resource{Kind: resource.KindCustom, Name: name, Acquire: acquire, Release: release, Timeout: time.Minute}
}

// held are the resources of a result that a file declares, as kind name state.
func held(res activities.StepResult) []string {
	var out []string
	for _, r := range res.Resources {
		if r.Kind != resource.KindProcess && r.Name != "tmp" {
			out = append(out, fmt.Sprintf("%s %s %s", r.Kind, r.Name, r.State))
		}
	}
	return out
}

func noRecords(t *testing.T, h *host) {
	t.Helper()
	all, err := h.resources.Records.All()
	require.NoError(t, err)
	require.Empty(t, all)
}

func TestStepHoldsWhatItDeclares(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	trace := filepath.Join(t.TempDir(), "trace")
	res, err := h.run(t, h.input(`
test -d "$BELAY_DIR_SCRATCH" && test "$BELAY_PORT_WEB_UI" -ge 24000
test "$BELAY_RESOURCE_ID_WINDOW" = w-42 && test -z "$BELAY_RESOURCE_ID"
test "$CLOUD" = issued-s3cr3t && echo "with $CLOUD"
echo "$BELAY_DIR_SCRATCH" > "$TRACE.dir"
echo run >> "$TRACE"`,
		holding(
			spec.Resource{Kind: resource.KindTempDir, Name: "scratch"},
			spec.Resource{Kind: resource.KindPort, Name: "web-ui"},
			custom("window", `echo "acquire $BELAY_PORT_WEB_UI" >> "$TRACE"; echo "${BELAY_HOLDER:?}" > "$TRACE.holder"; echo id=w-42`,
				`echo "release $BELAY_RESOURCE_ID $BELAY_PORT_WEB_UI $TOKEN" >> "$TRACE"; test -z "$CLOUD" && test "$BELAY_ATTEMPT" = 1 &&
				test "$BELAY_HOLDER" = "$(cat "$TRACE.holder")"`),
			spec.Resource{Kind: resource.KindCredential, Name: "CLOUD", Provider: "vault"},
		),
		func(in *activities.StepInput) {
			in.Env = map[string]string{"TRACE": trace}
			in.Step.Secrets = []string{"TOKEN"}
		}))
	require.NoError(t, err)
	require.Equal(t, []string{
		"credential CLOUD released", "custom window released", "port web-ui released", "temp_dir scratch released",
	}, held(res))
	require.Empty(t, res.Unreleased)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, 3)
	port := strings.TrimPrefix(lines[0], "acquire ")
	require.Equal(t, []string{"acquire " + port, "run", "release w-42 " + port + " s3cr3t-value"}, lines)
	require.Equal(t, "issue CLOUD \nrevoke CLOUD lease-7\n", h.asked(t), "the last acquired is released first")
	dir, err := os.ReadFile(trace + ".dir")
	require.NoError(t, err)
	require.NoDirExists(t, strings.TrimSpace(string(dir)))
	require.Contains(t, h.output(t), "with ***")
	noRecords(t, h)
}

func TestAcquireThatFailsIsNotReleased(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	trace := filepath.Join(t.TempDir(), "trace")
	res, err := h.run(t, h.input("echo run >> "+trace, holding(
		custom("first", "echo 1+ >> "+trace, "echo 1- >> "+trace),
		custom("second", "echo no; exit 4", "echo 2- >> "+trace),
		custom("third", "echo 3+ >> "+trace, "echo 3- >> "+trace),
	)))
	require.Error(t, err)
	require.Equal(t, run.TriggerExitCode, res.Cause.Trigger)
	require.Contains(t, res.Cause.Message, "acquiring custom second: acquire")
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Equal(t, "1+\n1-\n", string(text))
	require.Equal(t, []string{"custom second released", "custom first released"}, held(res))
	noRecords(t, h)
}

// Where no worker's setting names the provider, nobody was asked: nothing may have
// been issued, and nothing can leak.
func TestCredentialWithoutAProviderIsNotHeld(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	res, err := h.run(t, h.input("true", holding(
		custom("first", "true", "true"),
		spec.Resource{Kind: resource.KindCredential, Name: "CLOUD", Provider: "vualt"},
	)))
	require.Error(t, err)
	require.Equal(t, run.TriggerDependencyUnavailable, res.Cause.Trigger)
	require.Contains(t, res.Cause.Message, `the provider of credentials "vualt" is not available`)
	require.Equal(t, []string{"custom first released"}, held(res))
	require.Empty(t, res.Unreleased)
	noRecords(t, h)
}

// One that fails, one that hangs and one that panics do not keep the others from
// being released.
func TestReleasesAreIsolated(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	h.resources.Kinds = append(h.resources.Kinds, panics{})
	trace := filepath.Join(t.TempDir(), "trace")
	res, err := h.run(t, h.input("true", holding(
		custom("last", "true", "echo last >> "+trace),
		custom("fails", "echo id=x", "echo the reason; exit 9"),
		custom("hangs", "true", "trap '' TERM; sleep 300"),
		spec.Resource{Kind: "panics", Name: "p"},
	)))
	require.NoError(t, err, "the step has done its work")
	require.Equal(t, []string{"panics p releasing", "custom hangs releasing", "custom fails releasing", "custom last released"}, held(res))
	require.Len(t, res.Unreleased, 3)
	require.Contains(t, res.Unreleased[0].Error, "panicked: boom")
	require.Contains(t, res.Unreleased[1].Error, "took more than 10s")
	require.Contains(t, res.Unreleased[2].Error, "it said: the reason")
	require.FileExists(t, trace)

	// The stage tries again, and the last time says that they have leaked.
	got, err := h.env.ExecuteActivity(h.resources.ReleaseResources, activities.ReleaseInput{Entries: res.Unreleased[2:], Last: true})
	require.NoError(t, err)
	var again activities.ReleaseResult
	require.NoError(t, got.Get(&again))
	require.Len(t, again.Left(), 1)
	require.Equal(t, run.ResourceLeaked, again.Entries[0].State)
	require.Equal(t, 2, again.Entries[0].Attempts)
}

// Where release_timeout leaves little time, one that hangs takes its part of it only.
func TestOneThatHangsLeavesTheOthersTheirTime(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	trace := filepath.Join(t.TempDir(), "trace")
	for i, script := range []string{"sleep 300", "echo done >> " + trace} {
		e := resource.Entry{
			Owner: resource.Owner{RunKey: "k1", WorkflowID: "w", Node: "build/s", Attempt: 1}, Kind: resource.KindCustom,
			Name: fmt.Sprint("r", i), Scope: resource.ScopeStep, State: run.ResourceHeld, Host: h.resources.Host.ID(),
			Acquired: time.Now().Add(-time.Duration(i) * time.Hour), Release: &resource.Command{Script: script},
		}
		require.NoError(t, h.resources.Records.Note(&e))
	}
	ctx, cancel := context.WithTimeout(t.Context(), activities.ReleaseTry)
	defer cancel()
	got, _, err := activities.ReleaseHere(ctx, h.resources, "k1", "build")
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.FileExists(t, trace)
	require.NoError(t, ctx.Err(), "it can still be told what became of them")
}

// The order stays the same however often it is tried: what was acquired last may
// need what was acquired before.
func TestEachTryReleasesTheLastAcquiredFirst(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	trace := filepath.Join(t.TempDir(), "trace")
	res, err := h.run(t, h.input("true", holding(
		custom("first", "true", "echo first >> "+trace+"; exit 1"), custom("second", "true", "echo second >> "+trace+"; exit 1"),
	)))
	require.NoError(t, err, "the step has done its work")
	for range 2 {
		_, err = h.env.ExecuteActivity(h.resources.ReleaseResources, activities.ReleaseInput{Entries: res.Unreleased})
		require.NoError(t, err)
	}
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("second\nfirst\n", 3), string(text))
}

// What has leaked stays so while others go on trying.
func TestAFailedTryKeepsWhatHasLeaked(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	gone := filepath.Join(t.TempDir(), "gone")
	left := resource.Entry{
		Owner: resource.Owner{RunKey: "k1", WorkflowID: "w", Node: "build/s", Attempt: 1}, Kind: resource.KindCustom, Name: "x",
		Scope: resource.ScopeStep, State: run.ResourceLeaked, Attempts: 6, Host: h.resources.Host.ID(), Since: time.Now().Add(-time.Hour),
		Release: &resource.Command{Script: "test -e " + gone},
	}
	require.NoError(t, h.resources.Records.Note(&left))

	got, _, err := activities.ReleaseHere(t.Context(), h.resources, "k1", "build")
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, run.ResourceLeaked, got[0].State)
	require.Equal(t, 7, got[0].Attempts)

	require.NoError(t, os.WriteFile(gone, nil, 0o600))
	got[0].Since = got[0].Since.Add(-time.Hour)
	require.NoError(t, h.resources.Records.Note(&got[0]))
	got, _, err = activities.ReleaseHere(t.Context(), h.resources, "k1", "build")
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, run.ResourceReleased, got[0].State)
	noRecords(t, h)
}

type panics struct{}

func (panics) Name() string { return "panics" }

func (panics) Acquire(context.Context, *resource.Entry, resource.Ask) (resource.Grant, error) {
	return resource.Grant{}, nil
}

func (panics) Release(context.Context, *resource.Entry) error { panic("boom") }

func TestAHostLetsBeForAWhileWhatItCouldNotRelease(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	trace := filepath.Join(t.TempDir(), "trace")
	note := func(name string, tries int, ago time.Duration) {
		e := resource.Entry{
			Owner: resource.Owner{RunKey: "run", WorkflowID: "wf", Node: "build/x", Attempt: 1}, Kind: resource.KindCustom, Name: name,
			Scope: resource.ScopeStep, State: run.ResourceLeaked, Host: h.resources.Host.ID(), Attempts: tries, Since: time.Now().Add(-ago),
			Release: &resource.Command{Script: "echo " + name + " >> " + trace + "; exit 1"},
		}
		require.NoError(t, h.resources.Records.Note(&e))
	}
	note("new", 0, 0)
	note("resting", 20, 9*time.Minute)
	note("rested", 20, 11*time.Minute)
	tried, rest, err := activities.ReleaseHere(t.Context(), h.resources, "run", "build")
	require.NoError(t, err)
	require.True(t, rest)
	require.Len(t, tried, 2)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"new", "rested"}, strings.Fields(string(text)))
	tried, _, err = activities.ReleaseHere(t.Context(), h.resources, "run", "build")
	require.NoError(t, err)
	require.Empty(t, tried, "each has just been tried")
}

func TestCancelWhileAcquiringReleasesWithoutAnID(t *testing.T) {
	t.Parallel()
	h := setup(t, temporal.NewCanceledError())
	trace := filepath.Join(t.TempDir(), "trace")
	_, err := h.run(t, h.input("echo run >> "+trace, holding(
		custom("slow", "echo id=never; sleep 300", `echo "released [$BELAY_RESOURCE_ID]" >> `+trace))))
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Equal(t, "released []\n", string(text))
	noRecords(t, h)
}

func TestAnIDMayHoldNoSecret(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	res, err := h.run(t, h.input("true", holding(custom("x", `echo "id=a-$TOKEN"`, "true")),
		func(in *activities.StepInput) { in.Step.Secrets = []string{"TOKEN"} }))
	require.Error(t, err)
	require.Contains(t, res.Cause.Message, "holds a secret")
	require.NotContains(t, fmt.Sprintf("%+v", res), "s3cr3t-value")
}

// What an attempt held whose worker was killed is released by the next one.
func TestNextAttemptReleasesWhatTheLastOneLeft(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	trace := filepath.Join(t.TempDir(), "trace")
	left := resource.Entry{
		Owner: resource.Owner{RunKey: "k1", WorkflowID: "w", Node: "build/s", Attempt: 1}, Kind: resource.KindCustom, Name: "x",
		Scope: resource.ScopeStep, State: run.ResourceAcquiring, Host: h.resources.Host.ID(), Since: time.Now(),
		Release: &resource.Command{Script: `echo "left [$BELAY_RESOURCE_ID]" >> ` + trace},
	}
	require.NoError(t, h.resources.Records.Note(&left))
	res, err := h.run(t, h.input("echo run >> "+trace, holding(custom("x", "echo id=2", `echo "own $BELAY_RESOURCE_ID" >> `+trace)),
		func(in *activities.StepInput) { in.Attempts = 1 }))
	require.NoError(t, err)
	require.Equal(t, 2, res.Attempt)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Equal(t, "left []\nrun\nown 2\n", string(text))
	noRecords(t, h)
}

// What a step only may have acquired is released where nobody can know, not by the
// host that would have written it down.
func TestHostReleasesOfItsOwnOnlyWhatItWroteDown(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	trace := filepath.Join(t.TempDir(), "trace")
	declared := func(host string) resource.Entry {
		return resource.Entry{
			Owner: resource.Owner{RunKey: "k1", WorkflowID: "w", Node: "build/s", Attempt: 1}, Kind: resource.KindCustom, Name: "x",
			Scope: resource.ScopeStep, State: run.ResourceAcquiring, Host: host,
			Release: &resource.Command{Script: "echo released of " + host + " >> " + trace},
		}
	}
	_, err := h.env.ExecuteActivity(h.resources.ReleaseResources, activities.ReleaseInput{
		RunKey: "k1", Node: "build/s", Declared: []resource.Entry{declared(h.resources.Host.ID()), declared("gone")},
	})
	require.NoError(t, err)
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Equal(t, "released of gone\n", string(text))
}

// setupBeside is the same host for another step at the same time.
func setupBeside(t *testing.T, h *host) *host {
	t.Helper()
	other := *h
	var suite testsuite.WorkflowTestSuite
	other.env = suite.NewTestActivityEnvironment()
	other.env.SetTestTimeout(30 * time.Second)
	other.env.RegisterActivity(h.steps)
	return &other
}

// Two steps of one host meet at a lock; the second sees the first's work done.
func TestLockKeepsStepsApart(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	rdb := redistest.Start(t).Client(t)
	h.resources.Kinds = append(h.resources.Kinds, resource.NewLocks(rdb, resource.LocksOptions{}))
	trace := filepath.Join(t.TempDir(), "trace")
	lock := spec.Resource{Kind: resource.KindLock, Name: "deploy prod"}
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		other := setupBeside(t, h)
		wg.Go(func() {
			in := other.input(`echo "in $BELAY_LOCK_TOKEN_DEPLOY_PROD" >> `+trace+`; sleep 0.3; echo out >> `+trace, holding(lock))
			in.Node = fmt.Sprintf("build/s%d", i)
			_, errs[i] = other.env.ExecuteActivity(other.steps.RunStep, in)
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	lines := strings.Fields(string(text))
	require.Len(t, lines, 6)
	require.Equal(t, []string{"in", "out", "in", "out"}, []string{lines[0], lines[2], lines[3], lines[5]})
	require.Less(t, lines[1], lines[4], "the token grows")
}
