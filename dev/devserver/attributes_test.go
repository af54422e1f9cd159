package devserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	sqliteschema "go.temporal.io/server/schema/sqlite"
)

// TestForeignDatabase starts on a database whose namespace something else made:
// it gets the search attributes that it lacks and keeps those that it has.
func TestForeignDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := openDatabase(dir)
	require.NoError(t, err)
	ns, err := sqliteschema.NewNamespaceConfig(clusterName, "default", false, map[string]enumspb.IndexedValueType{
		"Theirs": enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	})
	require.NoError(t, err)
	require.NoError(t, sqliteschema.CreateNamespaces(db, ns))

	s, err := Start(t.Context(), Options{Dir: dir})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	have, err := s.Client().OperatorService().ListSearchAttributes(t.Context(),
		&operatorservice.ListSearchAttributesRequest{Namespace: "default"})
	require.NoError(t, err)
	require.Contains(t, have.GetCustomAttributes(), "Theirs")
	for name := range searchAttributes() {
		require.Contains(t, have.GetCustomAttributes(), name)
	}
}

// TestInterruptedCreation finds what a start that was killed leaves behind.
func TestInterruptedCreation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, databaseFile+".x.new"), []byte("half a database"), 0o600))
	_, err := openDatabase(dir)
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(dir, databaseFile))
	require.NoError(t, err)
	require.NotZero(t, info.Size())
}
