package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"belay.run/internal/run"
)

// unwind is how long what a fault has hit may take to be given back: heartbeats
// that are missed, a host that is looked for, a janitor that comes now and then.
const unwind = 10 * time.Minute

// check waits until nothing of a run is left, says what was not in order, and
// returns how the run ended.
func (s *storm) check(t *testing.T, v *victim) run.Status {
	t.Helper()
	left := "not looked at"
	for end := time.Now().Add(unwind); time.Now().Before(end); pause(t, 200*time.Millisecond) {
		if left = s.left(t, v); left == "" {
			break
		}
	}
	if left != "" {
		held := s.env.CLI(t, "resources", v.String())
		require.Fail(t, "left behind", "%s: %s\n%s%s", v.Ref, left, held.Stdout, held.Stderr)
	}
	if overlaps, err := os.ReadFile(filepath.Join(v.dir, "overlaps")); !s.twice {
		require.ErrorIs(t, err, fs.ErrNotExist, "two attempts of one step lived at the same time: %s", overlaps)
	}
	doc := s.env.Follow(t, v.Ref).Document()
	if v.cancelled {
		require.NotEqual(t, run.Succeeded, doc.Status, "a run that was cancelled")
	}
	require.True(t, doc.Status.Terminal(), doc.Status)
	return doc.Status
}

// left names what is left of a run, "" where nothing is.
func (s *storm) left(t *testing.T, v *victim) string {
	t.Helper()
	if pids := append(marked(t, v.mark), knowing(t, "OUT="+v.dir)...); len(pids) > 0 {
		return fmt.Sprintf("processes %v", pids)
	}
	if held := names(t, filepath.Join(v.dir, "held")); len(held) > 0 {
		return fmt.Sprintf("what a script acquired: %v", held)
	}
	scratch, err := os.ReadFile(filepath.Join(v.dir, "scratch"))
	if err == nil {
		for dir := range strings.FieldsSeq(string(scratch)) {
			if _, err := os.Stat(dir); err == nil {
				return "the temporary folder " + dir
			}
		}
	}
	for _, name := range names(t, filepath.Join(s.dir, "issued")) {
		if strings.Contains(name, v.RunID) {
			return "the credential of " + name
		}
	}
	if s.engine != nil {
		if left := containersOf(t, s.engine, v.RunID); len(left) > 0 {
			return fmt.Sprintf("containers and networks %v", left)
		}
	}
	if open := s.open(t, v); open != "" {
		return open
	}
	return s.inRedis(t, v)
}

// knowing are the living processes of this machine with a variable, in containers
// too.
func knowing(t *testing.T, variable string) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	var pids []int
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "environ")) // empty for those that have ended
		if err != nil || !strings.Contains("\x00"+string(text), "\x00"+variable+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// open names a workflow of the run that is not closed.
func (s *storm) open(t *testing.T, v *victim) string {
	t.Helper()
	for _, ref := range []struct{ id, runID string }{{v.ID, v.RunID}, {run.ChildID(v.ID, v.RunID, "one"), ""}} {
		d, err := s.env.Temporal.Client().DescribeWorkflowExecution(t.Context(), ref.id, ref.runID)
		if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
			continue
		}
		if err != nil {
			return err.Error()
		}
		if d.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
			return "the open workflow " + ref.id
		}
	}
	return ""
}

// inRedis names a lock that the run holds or waits for, and what the ledger does
// not say is released.
func (s *storm) inRedis(t *testing.T, v *victim) string {
	t.Helper()
	keys, err := s.rdb.Keys(t.Context(), "belay:lock:*").Result()
	if err != nil {
		return err.Error()
	}
	for _, key := range keys {
		if strings.HasSuffix(key, ":q") || strings.HasSuffix(key, ":w") {
			continue
		}
		lock, err := s.rdb.HGetAll(t.Context(), key).Result()
		queue, err2 := s.rdb.ZRange(t.Context(), key+":q", 0, -1).Result()
		switch {
		case errors.Join(err, err2) != nil:
			return errors.Join(err, err2).Error()
		case strings.HasPrefix(lock["owner"], v.RunID):
			return "the lock " + key
		case slices.ContainsFunc(queue, func(waiter string) bool { return strings.HasPrefix(waiter, v.RunID) }):
			return "a place in the queue of " + key
		}
	}
	ledger, err := s.rdb.HGetAll(t.Context(), "belay:ledger:{"+v.RunID+"}").Result()
	if err != nil {
		return err.Error()
	}
	for field, entry := range ledger {
		if strings.HasPrefix(entry, "{") && strings.Contains(entry, `"state"`) && !strings.Contains(entry, `"state":"released"`) {
			return "in the ledger " + field + ": " + entry
		}
	}
	return ""
}

// checkHosts waits until the hosts hold nothing, and nobody a place in a group.
func (s *storm) checkHosts(t *testing.T) {
	t.Helper()
	for _, h := range s.hosts {
		for _, dir := range []string{"bindings", "stages"} {
			path := filepath.Join(h.dir, dir)
			require.Eventually(t, func() bool { return len(names(t, path)) == 0 }, unwind, 200*time.Millisecond, "in %s is something left", path)
		}
	}
	for _, pid := range s.supervisors {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.False(t, err == nil && strings.Contains(string(stat), ") T "), "the supervisor %d is stopped for ever", pid)
	}
	ports := filepath.Join(s.dir, "ports")
	require.Eventually(t, func() bool { return len(portsHeld(t, ports)) == 0 }, unwind, 200*time.Millisecond, "in %s is something left", ports)
	require.Eventually(t, func() bool { return s.groupIsEmpty(t) }, unwind, 200*time.Millisecond, "somebody has a place in the group")
}

// checkTarget holds that no token was two owners', and that nobody wrote after an
// owner with a greater one, and counts who was refused because of that: only owners
// who may have lost their lock without knowing.
func (s *storm) checkTarget(t *testing.T) int {
	t.Helper()
	owners := map[string]string{}
	for _, door := range names(t, filepath.Join(s.dir, "written")) {
		last := 0
		for line := range lines(t, filepath.Join(s.dir, "written", door)) {
			token, owner, _ := strings.Cut(line, " ")
			n, err := strconv.Atoi(token)
			require.NoError(t, err, line)
			require.GreaterOrEqual(t, n, last, "%s: %s", door, line)
			last = n
			if other, ok := owners[door+token]; ok {
				require.Equal(t, other, owner, "two owners of %s have the token %s", door, token)
			}
			owners[door+token] = owner
		}
	}
	refused := 0
	for line := range lines(t, filepath.Join(s.dir, "refused")) {
		require.True(t, s.late, "an owner was late: %s", line)
		refused++
	}
	return refused
}

// lines are those of a file, none where it is not there.
func lines(t *testing.T, path string) iter.Seq[string] {
	t.Helper()
	text, err := os.ReadFile(path)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '\n' })
}

// portsHeld are the files of ports in a directory that somebody holds.
func portsHeld(t *testing.T, dir string) []string {
	t.Helper()
	var held []string
	for _, name := range names(t, dir) {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil && len(text) > 0 {
			held = append(held, name)
		}
	}
	return held
}

// groupIsEmpty reports whether the workflow of the group has closed, as it does
// when nobody is in it, or was never there.
func (s *storm) groupIsEmpty(t *testing.T) bool {
	t.Helper()
	list, err := s.env.Temporal.Client().ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: s.env.Temporal.Namespace(), Query: "WorkflowType = 'Group' AND ExecutionStatus = 'Running'",
	})
	return err == nil && len(list.GetExecutions()) == 0
}

// names are what is in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
