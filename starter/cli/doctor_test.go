package cli_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/config"
	"belay.run/starter/cli"
	"belay.run/starter/doctor"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	type doc struct{ Checks []doctor.Check }

	t.Run("SaysWhatIsWrong", func(t *testing.T) {
		t.Parallel()
		b := setup(t) // no worker, and no schedule
		r := b.exec(t, "doctor", "-o", "json")
		require.Equal(t, cli.ExitFailed, r.code)
		require.Empty(t, r.err)
		found := map[string]bool{}
		for _, c := range oneDocument[doc](t, r.out).Checks {
			found[c.Name] = c.OK
			require.True(t, c.OK || c.Remedy != "", "%+v", c)
		}
		require.True(t, found["store"])
		require.True(t, found["redis"], "none is configured")
		require.False(t, found["janitor"])

		r = b.exec(t, "doctor")
		require.Equal(t, cli.ExitFailed, r.code)
		require.Regexp(t, `(?m)^ok +store `, r.out)
		require.Regexp(t, `(?m)^WRONG +janitor `, r.out)
	})

	t.Run("GoesOnWithoutTemporal", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.opts.Connect = func(context.Context) (*cli.Connection, error) {
			return nil, &config.UnreachableError{Service: "Temporal", Address: "nowhere:7233", Check: "is it running?", Err: errors.New("refused")}
		}
		r := b.exec(t, "doctor", "-o", "json")
		require.Equal(t, cli.ExitUnreachable, r.code)
		checks := oneDocument[doc](t, r.out).Checks
		require.Equal(t, "temporal", checks[0].Name)
		require.False(t, checks[0].OK)
		require.Equal(t, "is it running?", checks[0].Remedy)
		require.Len(t, checks, 18)
	})
}
