package devserver_test

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.temporal.io/server/common/dynamicconfig"

	"belay.run/dev/devserver"
	"belay.run/dev/ports"
)

// TestPreset holds the preset to the values that were measured.
func TestPreset(t *testing.T) {
	t.Parallel()
	want := map[string]any{
		"frontend.WorkerCommandsEnabled":                        true,
		"system.enableCancelActivityWorkerCommand":              true,
		"history.timerProcessorMaxTimeShift":                    50 * time.Millisecond,
		"history.transferProcessorMaxPollRPS":                   2000,
		"history.timerProcessorMaxPollRPS":                      2000,
		"history.visibilityProcessorMaxPollRPS":                 2000,
		"history.outboundProcessorMaxPollRPS":                   2000,
		"history.longPollExpirationInterval":                    time.Second,
		"matching.numTaskqueueReadPartitions":                   1,
		"matching.numTaskqueueWritePartitions":                  1,
		"matching.enableFairness":                               true,
		"frontend.enableCancelWorkerPollsOnShutdown":            true,
		"history.hostLevelCacheMaxSize":                         8096,
		"history.enableStandaloneActivityOperatorCommands":      true,
		"frontend.enableBatchOperationsForStandaloneActivities": true,
	}
	preset := devserver.Preset()
	require.Len(t, preset, len(want))
	for key, value := range want {
		require.Equal(t, value, preset[dynamicconfig.MakeKey(key)], key)
	}
}

// TestServer checks what clients see of a fresh server.
func TestServer(t *testing.T) {
	t.Parallel()
	s := start(t, devserver.Options{})

	t.Run("preset is in force", func(t *testing.T) {
		t.Parallel()
		ns, err := s.Client().WorkflowService().DescribeNamespace(t.Context(),
			&workflowservice.DescribeNamespaceRequest{Namespace: s.Namespace()})
		require.NoError(t, err)
		require.True(t, ns.GetNamespaceInfo().GetCapabilities().GetWorkerCommands(), "cancels are pushed")
		require.Equal(t, 7*24*time.Hour, ns.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration())
	})

	t.Run("search attributes", func(t *testing.T) {
		t.Parallel()
		requireAttributes(t, s)
	})

	t.Run("port in use", func(t *testing.T) {
		t.Parallel()
		_, port, err := net.SplitHostPort(s.Address())
		require.NoError(t, err)
		n, err := net.LookupPort("tcp", port)
		require.NoError(t, err)
		_, err = devserver.Start(t.Context(), devserver.Options{Port: n})
		var inUse *ports.InUseError
		require.ErrorAs(t, err, &inUse)
		require.ErrorContains(t, err, s.Address())
		require.ErrorContains(t, err, "--port")
	})

	t.Run("no address", func(t *testing.T) {
		t.Parallel()
		_, err := devserver.Start(t.Context(), devserver.Options{IP: "localhost"})
		require.ErrorContains(t, err, `"localhost" is no IP address`)
	})
}

// TestRestart proves that a run survives the server: it waits when the server
// stops, and goes on when another one starts on the same directory.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a ?#%41 name") // and any name will do
	opts := client.StartWorkflowOptions{ID: "survivor", TaskQueue: "restart"}

	first := start(t, devserver.Options{Dir: dir})
	stop := work(t, first)
	run, err := first.Client().ExecuteWorkflow(t.Context(), opts, echo)
	require.NoError(t, err)
	require.NoError(t, first.Client().SignalWorkflow(t.Context(), run.GetID(), "", "word", "before"))
	requireHeard(t, first, run, 1)
	stop()
	require.NoError(t, first.Stop())

	second := start(t, devserver.Options{Dir: dir})
	defer work(t, second)()
	found, err := second.Client().DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
	require.NoError(t, err)
	require.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, found.GetWorkflowExecutionInfo().GetStatus())
	require.NoError(t, second.Client().SignalWorkflow(t.Context(), run.GetID(), "", "word", "after"))
	var words []string
	require.NoError(t, second.Client().GetWorkflow(t.Context(), run.GetID(), run.GetRunID()).Get(t.Context(), &words))
	require.Equal(t, []string{"before", "after"}, words)
}

// echo returns the first two words it is told.
func echo(ctx workflow.Context) ([]string, error) {
	var words []string
	if err := workflow.SetQueryHandler(ctx, "heard", func() (int, error) { return len(words), nil }); err != nil {
		return nil, err
	}
	for len(words) < 2 {
		var word string
		workflow.GetSignalChannel(ctx, "word").Receive(ctx, &word)
		words = append(words, word)
	}
	return words, nil
}

func requireHeard(t *testing.T, s *devserver.Server, run client.WorkflowRun, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var heard int
		value, err := s.Client().QueryWorkflow(t.Context(), run.GetID(), run.GetRunID(), "heard")
		return err == nil && value.Get(&heard) == nil && heard == n
	}, 10*time.Second, 10*time.Millisecond, "the run heard %d words", n)
}

func start(t *testing.T, opts devserver.Options) *devserver.Server {
	t.Helper()
	s, err := devserver.Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

func work(t *testing.T, s *devserver.Server) (stop func()) {
	t.Helper()
	w := worker.New(s.Client(), "restart", worker.Options{})
	w.RegisterWorkflow(echo)
	require.NoError(t, w.Start())
	return w.Stop
}

func requireAttributes(t *testing.T, s *devserver.Server) {
	t.Helper()
	attributes := make([]temporal.SearchAttributeUpdate, 0, 5)
	value := uuid.NewString()
	for _, name := range []string{"BelayTenant", "BelayProject", "BelayPipeline", "BelayStatus", "BelayDedupKey"} {
		attributes = append(attributes, temporal.NewSearchAttributeKeyKeyword(name).ValueSet(value))
	}
	_, err := s.Client().ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		TaskQueue: "nobody", TypedSearchAttributes: temporal.NewSearchAttributes(attributes...),
	}, "Some")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		found, err := s.Client().CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{
			Query: "BelayTenant = '" + value + "' AND BelayDedupKey = '" + value + "'",
		})
		return err == nil && found.GetCount() == 1
	}, 10*time.Second, 20*time.Millisecond, "the run can be found by its attributes")
}
