package e2e_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/starter/doctor"
)

// TestDoctorFindsNothing looks at an installation that is well. What depends on
// the machine that tests run on is not held to anything.
func TestDoctorFindsNothing(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	wrong := func() []doctor.Check {
		got := env.CLI(t, "doctor", "-o", "json")
		require.Empty(t, got.Stderr)
		var doc struct{ Checks []doctor.Check }
		require.NoError(t, json.Unmarshal([]byte(got.Stdout), &doc), got.Stdout)
		require.Len(t, doc.Checks, 18)
		return slices.DeleteFunc(doc.Checks, func(c doctor.Check) bool {
			return c.OK || slices.Contains([]string{"containers", "disk", "limits", "redis_persistence"}, c.Name)
		})
	}
	// A worker that has just begun has not reported yet, nor the janitor passed.
	var last []doctor.Check
	require.Eventually(t, func() bool {
		last = wrong()
		return len(last) == 0
	}, e2e.Patience, time.Second, "%+v", &last)
}
