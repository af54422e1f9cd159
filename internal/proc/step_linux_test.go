package proc

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/proc/supervisor/tree"
)

func TestOutputComesAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			job := script(t, `echo first; until [ -e go ]; do sleep 0.01; done; echo error >&2; printf last`)
			p := start(t, h, job)
			awaitOutput(t, job, "first\n", 1) // while the step waits for the file
			require.NoError(t, os.WriteFile(filepath.Join(job.Dir, "go"), nil, 0o600))
			r := wait(t, p)
			require.Equal(t, 0, r.ExitCode)
			require.Equal(t, "first\nlast", outputOf(job))
			require.Equal(t, "error\n", fmt.Sprint(job.Stderr))
		})
	}
}

func TestOneWriterForBothKeepsTheOrder(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	job := script(t, `for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done`)
	job.Stderr = job.Stdout
	run(t, h, job)
	require.Equal(t, "out1\nerr1\nout2\nerr2\nout3\nerr3\nout4\nerr4\nout5\nerr5\n", outputOf(job))
}

func TestBurstArrivesWhole(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			job := script(t, `head -c 5000000 /dev/zero`)
			run(t, h, job)
			require.Len(t, outputOf(job), 5_000_000)
		})
	}
}

func TestOutputToFilesAndNowhere(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	job := script(t, `echo to file; echo nowhere >&2; cat`) // nothing to read either
	job.Stdout, job.Stderr = file, nil
	run(t, h, job)
	_, err = file.Seek(0, io.SeekStart)
	require.NoError(t, err)
	text, err := io.ReadAll(file)
	require.NoError(t, err)
	require.NoError(t, file.Close(), "the file stays the caller's")
	require.Equal(t, "to file\n", string(text))
}

func TestHowAStepEnds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		script string
		code   int
		signal string
		says   string
	}{
		"success":          {`:`, 0, "", "exit code 0"},
		"failure":          {`exit 7`, 7, "", "exit code 7"},
		"highest":          {`exit 255`, 255, "", "exit code 255"},
		"not found":        {`no-such-command`, 127, "", "exit code 127: command not found"},
		"not executable":   {`/etc/passwd`, 126, "", "exit code 126: the command was found but could not be executed"},
		"signal":           {`kill -SEGV $$`, -1, "SIGSEGV", "killed by SIGSEGV"},
		"killed":           {`kill -9 $$`, -1, "SIGKILL", "killed by SIGKILL"},
		"command killed":   {`sh -c 'kill -9 $$'; exit $?`, 137, "", "exit code 137: a command in it was killed by SIGKILL"},
		"realtime ignored": {`exit 200`, 200, "", "exit code 200"},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			for name, c := range cases {
				t.Run(name, func(t *testing.T) {
					r := run(t, h, script(t, c.script))
					require.Equal(t, c.code, r.ExitCode)
					require.Equal(t, c.signal, r.Signal)
					require.Equal(t, c.says, r.String())
					require.False(t, r.Terminated)
					require.Zero(t, r.Leftover)
				})
			}
		})
	}
}

func TestUsageOfTheTree(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			job := script(t, `(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done); "$PROGRAM"`)
			job.Env = append(job.Env, helperEnv+"=allocate", "PROGRAM="+testBinary(t))
			r := run(t, h, job)
			require.Equal(t, 0, r.ExitCode)
			require.Positive(t, r.CPU)
			require.Greater(t, r.MaxRSS, int64(128<<20))
		})
	}
}

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	return path
}

func TestStepGetsItsEnvironmentAndNoMore(t *testing.T) {
	t.Setenv("WORKER_ONLY", "1")
	h := newHost(t, Options{NoCgroup: true})
	job := script(t, "")
	job.Argv = []string{"env"}
	job.Env = []string{"PATH=/usr/bin:/bin", "A=b=c", "BELAY_NODE=forged", "BELAY_HOST=forged", "BYTES=\xff\xfe"}
	run(t, h, job)
	require.Equal(t, "PATH=/usr/bin:/bin\nA=b=c\nBYTES=\xff\xfe\nBELAY_NODE=run/build/step\nBELAY_HOST="+h.id+"\n", outputOf(job))
}

func TestStepHasASessionAndAGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			job := script(t, `echo ready; exec sleep `+forever)
			p := start(t, h, job)
			awaitOutput(t, job, "ready", 1)
			own, err := tree.ReadStat(os.Getpid())
			require.NoError(t, err)
			step, err := tree.ReadStat(p.PID())
			require.NoError(t, err)
			require.NotEqual(t, own.SID, step.SID)
			require.Equal(t, p.PID(), step.PGID)
			if h.cgroups != "" {
				require.True(t, p.cgroup.Contains(p.PID()))
				require.False(t, p.cgroup.Contains(p.keeper.cmd.Process.Pid), "the supervisor stays outside")
			}
			p.Kill()
			wait(t, p)
		})
	}
}

// What the worker was started with must not reach its steps: ignored signals,
// held back signals, open files, a pipe that does not block.
func TestStepBeginsAfresh(t *testing.T) {
	t.Parallel()
	for _, noCgroup := range []string{"true", "false"} {
		t.Run("no cgroup "+noCgroup, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(bounded(t), "/bin/sh", "-c",
				`trap '' HUP INT QUIT TERM USR1 TSTP TTIN TTOU CHLD PIPE RTMIN; exec 7</dev/null 9>/dev/null; umask 027; ulimit -Sn 512; exec "$0"`, testBinary(t))
			cmd.Env = append(os.Environ(), helperEnv+"=worker", "WORKER_STATE="+t.TempDir(), "WORKER_NODE=run/build/step",
				"WORKER_DIR="+t.TempDir(), "WORKER_NO_CGROUP="+noCgroup,
				"WORKER_SCRIPT=cat /proc/self/status /proc/self/fdinfo/1; echo fds $(ls /proc/self/fd); echo nofile $(ulimit -n) umask $(umask)")
			out, err := cmd.Output()
			require.NoError(t, err)
			fields := map[string]string{}
			for line := range strings.Lines(string(out)) {
				if name, value, ok := strings.Cut(line, ":"); ok {
					fields[name] = strings.TrimSpace(value)
				}
			}
			require.Equal(t, "0000000000000000", fields["SigIgn"])
			require.Equal(t, "0000000000000000", fields["SigBlk"])
			flags, err := strconv.ParseInt(fields["flags"], 8, 64)
			require.NoError(t, err)
			require.Zero(t, flags&syscall.O_NONBLOCK, "the output must block")
			require.Contains(t, string(out), "fds 0 1 2 3\n", "3 is the directory that ls reads")
			require.Contains(t, string(out), "nofile 512 umask 0027\n")
		})
	}
}

func TestProgramsAreFound(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	job := script(t, "")
	tool := filepath.Join(job.Dir, "tool")
	require.NoError(t, os.WriteFile(tool, []byte("#!/bin/sh\necho \"$0\" \"$@\"\n"), 0o755))

	job.Argv = []string{"./tool", "relative to the directory"}
	run(t, h, job)
	job.Argv = []string{tool, "absolute"}
	run(t, h, job)
	job.Argv, job.Env = []string{"tool", "on the path"}, []string{"PATH=/nowhere:" + job.Dir}
	run(t, h, job)
	require.Equal(t, "./tool relative to the directory\n"+tool+" absolute\n"+tool+" on the path\n", outputOf(job))
}

func TestAnyNodeMayBeNamed(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			for _, node := range []string{
				"01J/build[arch=arm64,os=linux]/compile", "../../etc", ".", "ünï %2F\n", strings.Repeat("long/", 300) + "end",
			} {
				job := script(t, `printf %s "$BELAY_NODE"`)
				job.Node = node
				run(t, h, job)
				require.Equal(t, node, outputOf(job))
			}
		})
	}
}
