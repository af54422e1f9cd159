// Package engine gives tests a container engine with an image in it. No
// registry is needed: the image is made of the machine's own busybox.
package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"belay.run/internal/testkit/need"
)

// Image is the image that the engine has.
const Image = "belay-test/busybox:1"

// Engine is a container engine that tests may use.
type Engine struct {
	*client.Client
	// Address is its socket.
	Address string
}

// Need demands a container engine and makes sure that it has the image.
func Need(tb testing.TB) *Engine {
	tb.Helper()
	address := need.Engine(tb)
	busybox := need.Program(tb, "busybox", "apt-get install busybox-static")
	api, err := client.New(client.WithHost(address))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, api.Close()) })
	ctx := context.WithoutCancel(tb.Context())
	if _, err := api.ImageInspect(ctx, Image); err != nil {
		require.NoError(tb, load(ctx, api, busybox))
	}
	return &Engine{Client: api, Address: address}
}

// load makes the image.
func load(ctx context.Context, api *client.Client, busybox string) error {
	root, err := rootOf(ctx, busybox)
	if err != nil {
		return fmt.Errorf("packing %s: %w", busybox, err)
	}
	got, err := api.ImageImport(ctx, client.ImageImportSource{Source: bytes.NewReader(root), SourceName: "-"}, Image,
		client.ImageImportOptions{Changes: []string{"ENV PATH=/bin FROM_IMAGE=yes", "CMD [\"/bin/sh\"]"}})
	if err != nil {
		return fmt.Errorf("importing the image: %w", err)
	}
	var said bytes.Buffer
	_, err = said.ReadFrom(got)
	if strings.Contains(said.String(), `"error"`) {
		err = errors.Join(err, errors.New(said.String()))
	}
	return errors.Join(err, got.Close())
}

// rootOf is a root file system of busybox alone.
func rootOf(ctx context.Context, busybox string) ([]byte, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var errs []error
	file := func(name string, mode int64, content string) {
		errs = append(errs, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}))
		_, err := w.Write([]byte(content))
		errs = append(errs, err)
	}
	for dir, mode := range map[string]int64{"bin": 0o755, "etc": 0o755, "tmp": 0o1777, "proc": 0o755, "sys": 0o755, "dev": 0o755} {
		errs = append(errs, w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: mode}))
	}
	file("bin/busybox", 0o755, string(program))
	file("etc/passwd", 0o644, "root:x:0:0:root:/:/bin/sh\n")
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet == "busybox" {
			continue
		}
		errs = append(errs, w.WriteHeader(&tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}))
	}
	return b.Bytes(), errors.Join(append(errs, w.Close())...)
}
