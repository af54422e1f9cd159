package container

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"

	"belay.run/internal/command"
)

const (
	// hubKey is under which config.json has the login of the default registry.
	hubKey      = "https://index.docker.io/v1/"
	hubDomain   = "docker.io"
	helperBound = 10 * time.Second
	maxLogin    = 64 << 10
)

// Login is how to log in to the registry of an image with a user name and a
// password, as the engine wants it.
func Login(image, username, password string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("%q is no name of an image: %w", image, err)
	}
	return encode(registry.AuthConfig{Username: username, Password: password, ServerAddress: serverOf(reference.Domain(named))})
}

// Login is how to log in to the registry of an image by what the host's
// registry configuration knows; empty where it knows nothing.
func (h *Host) Login(ctx context.Context, image string) (string, error) {
	if h.opts.RegistryConfig == "" {
		return "", nil
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("%q is no name of an image: %w", image, err)
	}
	text, err := os.ReadFile(h.opts.RegistryConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the logins of registries: %w", err)
	}
	var file configFile
	if err := json.Unmarshal(text, &file); err != nil {
		// What is wrong with it may quote a password.
		return "", fmt.Errorf("reading the logins of registries: %s is not JSON in the form of docker's config.json", h.opts.RegistryConfig)
	}
	auth, err := file.login(ctx, reference.Domain(named))
	if err != nil || auth == (registry.AuthConfig{}) {
		return "", err
	}
	return encode(auth)
}

// configFile is what of docker's config.json logins need.
type configFile struct {
	Auths map[string]struct {
		Auth          string `json:"auth"`
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
	} `json:"auths"`
	CredsStore  string            `json:"credsStore"`
	CredHelpers map[string]string `json:"credHelpers"`
}

// login finds the login of a registry: by the helper that is named for it, in
// the file itself, by the helper for all.
func (f configFile) login(ctx context.Context, domain string) (registry.AuthConfig, error) {
	server := serverOf(domain)
	for _, key := range []string{domain, server} {
		if helper := f.CredHelpers[key]; helper != "" {
			return askHelper(ctx, helper, key)
		}
	}
	for _, key := range []string{domain, server, "https://" + domain} {
		entry, ok := f.Auths[key]
		if !ok {
			continue
		}
		auth := registry.AuthConfig{
			Username: entry.Username, Password: entry.Password, IdentityToken: entry.IdentityToken, ServerAddress: server,
		}
		if entry.Auth != "" {
			both, err := base64.StdEncoding.DecodeString(entry.Auth)
			name, password, ok := strings.Cut(string(both), ":")
			if err != nil || !ok {
				return registry.AuthConfig{}, fmt.Errorf("the login of the registry %s is not base64 of name:password", domain)
			}
			auth.Username, auth.Password = name, strings.TrimRight(password, "\x00")
		}
		if auth.Username != "" || auth.IdentityToken != "" {
			return auth, nil
		}
	}
	if f.CredsStore != "" {
		return askHelper(ctx, f.CredsStore, server)
	}
	return registry.AuthConfig{}, nil
}

// askHelper asks one of docker's credential helpers. That it knows no login is
// no error: the image may be public.
func askHelper(ctx context.Context, name, server string) (registry.AuthConfig, error) {
	out, err := command.Call{
		Argv: []string{"docker-credential-" + name, "get"}, Input: server, Most: maxLogin, Within: helperBound,
	}.Output(ctx)
	if err != nil {
		if bytes.Contains(out, []byte("credentials not found")) {
			return registry.AuthConfig{}, nil
		}
		return registry.AuthConfig{}, fmt.Errorf("asking docker-credential-%s for the login of %s: %w", name, server, err)
	}
	var got struct{ Username, Secret string }
	if err := json.Unmarshal(out, &got); err != nil {
		return registry.AuthConfig{}, fmt.Errorf("docker-credential-%s did not answer with JSON", name)
	}
	if got.Username == "<token>" {
		return registry.AuthConfig{IdentityToken: got.Secret, ServerAddress: server}, nil
	}
	return registry.AuthConfig{Username: got.Username, Password: got.Secret, ServerAddress: server}, nil
}

func encode(auth registry.AuthConfig) (string, error) {
	text, err := authconfig.Encode(auth)
	if err != nil {
		return "", fmt.Errorf("encoding the login of a registry: %w", err)
	}
	return text, nil
}

func serverOf(domain string) string {
	if domain == hubDomain {
		return hubKey
	}
	return domain
}
