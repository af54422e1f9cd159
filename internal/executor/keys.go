package executor

import (
	"context"

	"belay.run/internal/dedup"
)

// Claims makes and settles claims of keys in bulk.
type Claims interface {
	// ClaimBatch is that of [dedup.Claims].
	ClaimBatch(ctx context.Context, claims []dedup.Claim) ([]dedup.Verdict, error)
	// SettleBatch is that of [dedup.Claims].
	SettleBatch(ctx context.Context, settlements []dedup.Settlement) ([]error, error)
}
