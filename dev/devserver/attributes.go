package devserver

import (
	"context"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"
)

// ensureAttributes adds the search attributes that the namespace lacks and
// waits until they can be used. A new namespace is created with them; one from
// a database that something else made is not.
func ensureAttributes(ctx context.Context, c client.Client, namespace string) error {
	missing, err := missingAttributes(ctx, c, namespace)
	if err != nil || len(missing) == 0 {
		return err
	}
	if _, err := c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: namespace, SearchAttributes: missing,
	}); err != nil {
		return fmt.Errorf("adding search attributes: %w", err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		missing, err := missingAttributes(ctx, c, namespace)
		if err != nil || len(missing) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for search attributes to become usable: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func missingAttributes(ctx context.Context, c client.Client, namespace string) (map[string]enumspb.IndexedValueType, error) {
	have, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return nil, fmt.Errorf("listing search attributes: %w", err)
	}
	missing := searchAttributes()
	for name, want := range missing {
		switch got, ok := have.GetCustomAttributes()[name]; {
		case ok && got == want:
			delete(missing, name)
		case ok:
			return nil, fmt.Errorf("search attribute %s of namespace %s has type %s, Belay needs %s: remove it, or use another data directory",
				name, namespace, got, want)
		}
	}
	return missing, nil
}
