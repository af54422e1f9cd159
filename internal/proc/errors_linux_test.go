package proc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	plain := file("plain", "text", 0o644)
	script := file("script", "#!/no/such/interpreter -x\n", 0o755)
	junk := file("junk", "neither ELF nor script", 0o755)
	manyBig := make([]string, 100)
	for i := range manyBig {
		manyBig[i] = "V" + strings.Repeat("x", i) + "=" + strings.Repeat("v", 100<<10)
	}
	cases := map[string]struct {
		change func(*Job)
		kind   error
		says   []string
	}{
		"no node":           {func(j *Job) { j.Node = "" }, ErrInvalidJob, []string{"names no node"}},
		"no program":        {func(j *Job) { j.Argv = nil }, ErrInvalidJob, []string{"names no program"}},
		"negative grace":    {func(j *Job) { j.Grace = -1 }, ErrInvalidJob, []string{"negative"}},
		"NUL in argument":   {func(j *Job) { j.Argv = []string{"sh", "a\x00b"} }, ErrInvalidJob, []string{"argument 1", "NUL"}},
		"NUL in variable":   {func(j *Job) { j.Env = []string{"KEY=secret\x00"} }, ErrInvalidJob, []string{`"KEY"`, "NUL"}},
		"variable no name":  {func(j *Job) { j.Env = []string{"secret"} }, ErrInvalidJob, []string{"has no name"}},
		"missing shell":     {func(j *Job) { j.Argv = []string{"/bin/no-such-shell"} }, ErrNoProgram, []string{"/bin/no-such-shell", "not on this host"}},
		"not on the path":   {func(j *Job) { j.Argv = []string{"no-such-tool"} }, ErrNoProgram, []string{"no-such-tool", "looked in /usr/bin:/bin"}},
		"below a file":      {func(j *Job) { j.Argv = []string{plain + "/sh"} }, ErrNoProgram, []string{"not on this host"}},
		"not executable":    {func(j *Job) { j.Argv = []string{plain} }, ErrNotExecutable, []string{plain, "not executable", "-rw-r--r--"}},
		"directory":         {func(j *Job) { j.Argv = []string{dir} }, ErrNotExecutable, []string{dir, "is a directory"}},
		"no interpreter":    {func(j *Job) { j.Argv = []string{script} }, ErrNoProgram, []string{script, "/no/such/interpreter"}},
		"no program format": {func(j *Job) { j.Argv = []string{junk} }, ErrNotExecutable, []string{junk, "#!"}},
		"missing directory": {func(j *Job) { j.Dir = dir + "/gone" }, ErrNoDir, []string{dir + "/gone", "does not exist"}},
		"directory is file": {func(j *Job) { j.Dir = plain }, ErrNoDir, []string{plain, "is a file"}},
		"directory in file": {func(j *Job) { j.Dir = plain + "/x" }, ErrNoDir, []string{"below a file"}},
		"one big variable": {
			func(j *Job) { j.Env = append(j.Env, "BIG="+strings.Repeat("secret", 40_000)) }, ErrTooBig,
			[]string{"the variable BIG with 234 KiB", "one may have 128 KiB"},
		},
		"big environment": {func(j *Job) { j.Env = append(j.Env, manyBig...) }, ErrTooBig, []string{"10005 KiB in 1 arguments and 101 variables"}},
		"beyond all":      {func(j *Job) { j.Env = append(j.Env, "BIG="+strings.Repeat("x", 20<<20)) }, ErrTooBig, []string{"the variable BIG with 20480 KiB"}},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			for name, c := range cases {
				t.Run(name, func(t *testing.T) {
					job := Job{Node: "run/build/step", Argv: []string{"true"}, Dir: dir, Env: []string{"PATH=/usr/bin:/bin"}}
					c.change(&job)
					_, err := h.Start(t.Context(), job)
					var start *StartError
					require.ErrorAs(t, err, &start)
					require.ErrorIs(t, err, c.kind)
					for _, part := range c.says {
						require.ErrorContains(t, err, part)
					}
					require.NotContains(t, err.Error(), "secret", "values stay out of errors")
				})
			}
			require.Empty(t, recordsOf(t, h))
		})
	}
}

func TestACancelledStartStartsNothing(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			reason := errors.New("no longer wanted")
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(reason)
			job := script(t, `touch started`)
			_, err := h.Start(ctx, job)
			require.ErrorIs(t, err, reason)
			require.NoFileExists(t, filepath.Join(job.Dir, "started"))
		})
	}
}

func TestHostNeedsAStateDirectory(t *testing.T) {
	t.Parallel()
	_, err := New(Options{})
	require.ErrorContains(t, err, "state directory")
}

func TestAGivenCgroupMustWork(t *testing.T) {
	t.Parallel()
	_, err := New(Options{StateDir: t.TempDir(), CgroupRoot: filepath.Join(t.TempDir(), "none")})
	require.ErrorContains(t, err, "cgroup")
	_, err = New(Options{StateDir: t.TempDir(), CgroupRoot: t.TempDir()}) // a directory, and no cgroup
	require.ErrorContains(t, err, "cgroup")
}
