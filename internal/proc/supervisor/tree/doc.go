// Package tree looks at and ends trees of processes on Linux: by /proc, by
// pidfd, and by cgroup v2. It imports the standard library only, because the
// supervisor of a step starts with it; see package supervisor.
package tree
