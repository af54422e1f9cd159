package proc

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"belay.run/internal/proc/supervisor/tree"
)

// endStrays ends processes that bear the mark of this host and of a wanted node
// in their environment, and what descends from them. It returns the nodes that
// they were of. What cleared its environment is not found.
func (h *Host) endStrays(ctx context.Context, wanted func(node string) bool) (map[string]bool, error) {
	nodes := map[string]bool{}
	look := firstLook
	for deadline := time.Now().Add(takeOverBound); ; look = min(2*look, lastLook) {
		strays := h.findStrays(wanted)
		if len(strays) == 0 {
			return nodes, nil
		}
		for pid, node := range strays {
			nodes[node] = true
			for _, below := range tree.Descendants(pid) {
				_ = tree.SignalIf(below, unix.SIGKILL, func(s tree.Stat) bool { return descends(s, pid) }) // it may have ended
			}
			_ = tree.SignalIf(pid, unix.SIGKILL, func(s tree.Stat) bool { // it may have ended
				return h.strayNode(s.PID) == node
			})
		}
		if time.Now().After(deadline) {
			return nodes, fmt.Errorf("%w: %d processes", ErrStillAlive, len(strays))
		}
		select {
		case <-ctx.Done():
			return nodes, context.Cause(ctx)
		case <-time.After(look):
		}
	}
}

// findStrays looks at the environment of every process that this one may look
// at and returns the nodes of those that are wanted, by pid.
func (h *Host) findStrays(wanted func(node string) bool) map[int]string {
	self := os.Getpid()
	strays := map[int]string{}
	for _, pid := range tree.Processes() {
		if pid == self || pid <= 1 {
			continue
		}
		node := h.strayNode(pid)
		if node == "" || !wanted(node) {
			continue
		}
		if s, err := tree.ReadStat(pid); err == nil && !s.Dead() {
			strays[pid] = node
		}
	}
	return strays
}

// strayNode is the node whose mark a process bears, "" if it bears none of
// this host.
func (h *Host) strayNode(pid int) string {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "" // another user's, or gone
	}
	ours, node := false, ""
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if value, ok := bytes.CutPrefix(kv, []byte(EnvHost+"=")); ok {
			ours = string(value) == h.id
		}
		if value, ok := bytes.CutPrefix(kv, []byte(EnvNode+"=")); ok {
			node = string(value)
		}
	}
	if !ours {
		return ""
	}
	return node
}
