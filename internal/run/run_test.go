package run_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
)

func TestNodePaths(t *testing.T) {
	t.Parallel()
	require.Equal(t, "build", run.StageNode("build", nil))
	require.Equal(t, "build[arch=arm64,os=linux]/compile",
		run.StepNode(run.StageNode("build", run.Leg{"os": "linux", "arch": "arm64"}), "compile"))
	require.Equal(t, "b[v=a%2Cb%3D%5Dc%2F%25]", run.StageNode("b", run.Leg{"v": "a,b=]c/%"}))
}

func TestWithin(t *testing.T) {
	t.Parallel()
	require.True(t, run.Within("build", "build"))
	require.True(t, run.Within("build/compile", "build"))
	require.False(t, run.Within("build2/compile", "build"))
	require.False(t, run.Within("build[os=linux]/compile", "build"))
}

func TestIDsArePrintableASCII(t *testing.T) {
	t.Parallel()
	id := run.ID("acme", "web shop", "déploi", "r 1+1")
	require.Equal(t, "acme/web%20shop/d%C3%A9ploi/r/r%201+1", id)
	child := run.ChildID(id, "key", run.StageNode("b", run.Leg{"v": "日本"}))
	require.Equal(t, id+"/key/b[v=%E6%97%A5%E6%9C%AC]", child)
	require.Equal(t, -1, strings.IndexFunc(child, func(r rune) bool { return r <= ' ' || r > '~' }))
}

func TestKeyedIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "acme/web/shop/k/v1%20%25+prod", run.KeyedID("acme", "web", "shop", "v1 %+prod"))
	require.NotEqual(t, run.KeyedID("a", "b", "c", "r/1"), run.ID("a", "b", "c", "r/1"))
	long := strings.Repeat("é", 400)
	require.Equal(t, strings.Repeat("k", 200), run.ShortKey(strings.Repeat("k", 200)))
	require.LessOrEqual(t, len(run.ShortKey(long)), 200)
	require.NotEqual(t, run.ShortKey(long+"a"), run.ShortKey(long+"b"))
	require.Less(t, len(run.KeyedID("t", "p", "n", strings.Repeat("é", 512))), 900)
}

func TestGroupIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, "acme/web/group/deploy%2Fprod%20eu", run.GroupID("acme", "web", "deploy/prod eu"))
	long := strings.Repeat("é", 500)
	require.NotEqual(t, run.GroupID("t", "p", long+"a"), run.GroupID("t", "p", long+"b"))
	require.LessOrEqual(t, len(run.GroupID("t", "p", long)), 220)
}

func TestEveryTriggerHasAState(t *testing.T) {
	t.Parallel()
	for trigger, want := range map[run.Trigger]run.Status{
		run.TriggerUser: run.Cancelled, run.TriggerSuperseded: run.Cancelled, run.TriggerMaintenance: run.Cancelled,
		run.TriggerPipelineTimeout: run.TimedOut, run.TriggerStageTimeout: run.TimedOut,
		run.TriggerStepTimeout: run.TimedOut, run.TriggerCommandTimeout: run.TimedOut,
		run.TriggerDependencyFailed: run.Skipped, run.TriggerDependencyUnavailable: run.Failed,
		run.TriggerExitCode: run.Failed, run.TriggerProcessCrashed: run.Failed, run.TriggerWorkerLost: run.Failed,
		run.TriggerLimitExceeded: run.Failed, run.TriggerInvalid: run.Failed, run.TriggerGroupFull: run.Failed,
	} {
		require.Equal(t, want, trigger.Status(), trigger)
		require.True(t, trigger.Known(), trigger)
	}
	require.False(t, run.Trigger("wrapError").Known())
}

func TestCauseReadsAsOneLine(t *testing.T) {
	t.Parallel()
	c := &run.Cause{Trigger: run.TriggerUser, Source: "build", Message: "wrong tag", By: "ada@box"}
	require.Equal(t, "cancelled at build by ada@box: wrong tag", c.String())
	c.Source = ""
	require.Equal(t, "cancelled by ada@box: wrong tag", c.String())
	c.Trigger, c.Source = run.TriggerStepTimeout, "build/a"
	require.Equal(t, "step_timeout of build/a by ada@box: wrong tag", c.String())
	require.Empty(t, (*run.Cause)(nil).String())
}
