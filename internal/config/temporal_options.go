package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"google.golang.org/grpc"

	"belay.run/internal/certs"
	"belay.run/internal/seal"
	"belay.run/internal/telemetry"
	"belay.run/internal/tracing"
)

const apiKeyFileEnv = "BELAY_TEMPORAL_API_KEY_FILE"

func temporalSettings() []Setting {
	return []Setting{
		{
			Name: "temporal_api_key_file", Env: apiKeyFileEnv,
			Help: "File with the API key for Temporal, in place of TEMPORAL_API_KEY: it is read again for each call, so that the key can be replaced.",
			set:  text(func(c *Config) *string { return &c.TemporalAPIKeyFile }),
		},
	}
}

// clientOptions reads the environment and the profile file.
func clientOptions(o TemporalOptions) (client.Options, error) {
	environ := o.Environ
	if environ == nil {
		environ = os.Environ()
	}
	opts, err := profileOptions(env(environ), o)
	if err != nil {
		return client.Options{}, &SettingError{"reading how to reach Temporal from TEMPORAL_… and its profile file", err}
	}
	if err := useKeyFile(&opts, o.APIKeyFile); err != nil {
		return client.Options{}, &SettingError{apiKeyFileEnv, err}
	}
	setUnlessGiven(&opts.HostPort, client.DefaultHostPort)
	setUnlessGiven(&opts.Namespace, client.DefaultNamespace)
	opts.Logger = telemetry.Temporal(o.Logger)
	opts.MetricsHandler = o.Metrics
	opts.Identity = o.Identity
	opts.WorkerHeartbeatInterval = o.WorkerHeartbeat
	cmp.Or(o.Codec, new(seal.Codec)).Apply(&opts)
	opts.Interceptors = append(opts.Interceptors, tracing.Client())
	return opts, nil
}

// profileOptions are those of the environment and the profile file. What they say
// of TLS is read once; the files that they name are read for each connection.
func profileOptions(lookup envconfig.EnvLookup, o TemporalOptions) (client.Options, error) {
	profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{EnvLookup: lookup})
	if err != nil {
		return client.Options{}, err
	}
	opts, err := profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
	if err != nil || profile.TLS == nil || opts.ConnectionOptions.TLS == nil {
		return opts, err
	}
	files := certs.Files{CA: profile.TLS.ServerCACertPath, Cert: profile.TLS.ClientCertPath, Key: profile.TLS.ClientKeyPath}
	if files == (certs.Files{}) {
		return opts, nil
	}
	source, err := certs.Open(files, o.Logger)
	if err != nil {
		return client.Options{}, err
	}
	opts.ConnectionOptions.DialOptions = append(opts.ConnectionOptions.DialOptions,
		grpc.WithTransportCredentials(source.GRPC(opts.ConnectionOptions.TLS)))
	return opts, nil
}

// useKeyFile has the API key read from a file.
func useKeyFile(opts *client.Options, path string) error {
	if path == "" {
		return nil
	}
	if opts.Credentials != nil {
		return errors.New("the API key is also given by TEMPORAL_API_KEY or the profile: one of the two is wanted")
	}
	if _, err := readKey(path); err != nil {
		return err
	}
	opts.Credentials = client.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) { return readKey(path) })
	return nil
}

func readKey(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the API key for Temporal: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("reading the API key for Temporal: %s is empty", path)
	}
	return key, nil
}

// env is a list of NAME=value as envconfig reads it.
type env []string

var _ envconfig.EnvLookup = env(nil)

// Environ returns the list.
func (e env) Environ() []string { return e }

// LookupEnv finds a variable; as anywhere, the last of a name counts.
func (e env) LookupEnv(name string) (string, bool) {
	for _, entry := range slices.Backward(e) {
		if found, value, _ := strings.Cut(entry, "="); found == name {
			return value, true
		}
	}
	return "", false
}
