package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// fetch makes sure that the engine has an image, as its pull policy says. The
// context ends it at once.
func fetch(ctx context.Context, api *client.Client, image Image, login string, log io.Writer) error {
	if image.Pull != PullAlways {
		_, err := api.ImageInspect(ctx, image.Name)
		switch {
		case err == nil:
			return nil
		case !errdefs.IsNotFound(err):
			return fmt.Errorf("looking for the image %s: %w", image.Name, err)
		case image.Pull == PullNever:
			return fmt.Errorf("the engine does not have the image %s, and pull is never: %w", image.Name, err)
		}
	}
	// Where nobody reads it, it is not needed.
	_, _ = fmt.Fprintf(log, "container: fetching the image %s\n", image.Name)
	if err := pull(ctx, api, image.Name, login); err != nil {
		return fmt.Errorf("fetching the image %s: %w", image.Name, err)
	}
	return nil
}

func pull(ctx context.Context, api *client.Client, name, login string) error {
	stream, err := api.ImagePull(ctx, name, client.ImagePullOptions{RegistryAuth: login})
	if err != nil {
		return err
	}
	return errors.Join(stream.Wait(ctx), stream.Close())
}

// isRootless reports whether the engine runs without root: then root in its
// containers is the engine's user outside.
func isRootless(ctx context.Context, api *client.Client) (bool, error) {
	got, err := api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return false, fmt.Errorf("asking the engine about itself: %w", err)
	}
	return slices.Contains(got.Info.SecurityOptions, "name=rootless"), nil
}
