package devserver

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

const databaseFile = "temporal.db"

// openDatabase readies the database: in memory, or in a file in dir that is
// created where it is missing.
func openDatabase(dir string) (*config.SQL, error) {
	if dir == "" {
		return &config.SQL{
			PluginName:   sqlite.PluginName,
			DatabaseName: "belay-" + uuid.NewString(),
			ConnectAttributes: map[string]string{
				"mode": "memory", "cache": "shared",
			},
		}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the data directory: %w", err)
	}
	path := filepath.Join(dir, databaseFile)
	if err := createFile(path); err != nil {
		return nil, fmt.Errorf("creating Temporal's database %s: %w", path, err)
	}
	// One connection (the default) is right: several under WAL measured a
	// third of the throughput and stalls of seconds.
	return fileConfig(path, map[string]string{"journal_mode": "wal", "synchronous": "normal"}), nil
}

// createFile lays the schema into a new database beside path and moves it there
// when it is whole, so that a start that was interrupted is simply repeated.
func createFile(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	draft := fmt.Sprintf("%s.%s.new", path, uuid.NewString())
	if err := sqliteschema.SetupSchema(fileConfig(draft, map[string]string{"synchronous": "off"})); err != nil {
		return errors.Join(err, os.Remove(draft))
	}
	return os.Rename(draft, path)
}

func fileConfig(path string, pragmas map[string]string) *config.SQL {
	attributes := map[string]string{"mode": "rwc"}
	maps.Copy(attributes, pragmas)
	// The name becomes part of a URI.
	escaped := strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23").Replace(path)
	return &config.SQL{PluginName: sqlite.PluginName, DatabaseName: escaped, ConnectAttributes: attributes}
}

// searchAttributes are the custom search attributes that Belay's workflows set.
// They are named here once more, so that the server can be built without Belay.
func searchAttributes() map[string]enumspb.IndexedValueType {
	attributes := map[string]enumspb.IndexedValueType{}
	for _, name := range []string{"BelayTenant", "BelayProject", "BelayPipeline", "BelayStatus", "BelayDedupKey"} {
		attributes[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	return attributes
}

// createNamespace registers the namespace before the server starts, so that it
// is there from the first request on. One that exists stays as it is.
func createNamespace(db *config.SQL, name string, retention time.Duration) error {
	ns, err := sqliteschema.NewNamespaceConfig(clusterName, name, false, searchAttributes())
	if err != nil {
		return fmt.Errorf("describing namespace %s: %w", name, err)
	}
	ns.Detail.GetConfig().Retention = durationpb.New(retention)
	if err := sqliteschema.CreateNamespaces(db, ns); err != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}
