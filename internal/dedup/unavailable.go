package dedup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrUnavailable is returned where Redis cannot be reached or does not do its work
// now: it is down, slow, loading, failing over or full, or lets nobody in, as in
// the midst of a change of its password. Whether the call took effect is not known;
// to repeat it does no harm.
var ErrUnavailable = errors.New("redis is unavailable")

// fault marks an error of a call as ErrUnavailable where it is one. Ctx is the
// caller's: that the caller gave up says nothing about Redis.
func fault(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || !unavailable(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func unavailable(err error) bool {
	var ne net.Error
	switch {
	case errors.As(err, &ne), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return true
	case redis.IsLoadingError(err), redis.IsReadOnlyError(err), redis.IsClusterDownError(err), redis.IsTryAgainError(err),
		redis.IsMasterDownError(err), redis.IsMaxClientsError(err), redis.IsOOMError(err), redis.IsNoReplicasError(err),
		redis.IsAuthError(err), redis.IsPermissionError(err):
		return true
	}
	// What has no predicate and no type of its own in the client.
	for _, part := range []string{"BUSY ", "MISCONF ", "UNBLOCKED ", "all sentinels specified in configuration are unreachable", "cluster has no nodes"} {
		if strings.Contains(err.Error(), part) {
			return true
		}
	}
	return false
}
