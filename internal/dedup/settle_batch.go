package dedup

import (
	"context"
	"fmt"
)

// SettleBatch ends many claims in a round trip for each thousand and server. Each
// has its own error, as [Claims.Settle] has it; the error beside them says that
// Redis could not be asked, and that some may have ended: to repeat the batch does
// no harm.
func (c *Claims) SettleBatch(ctx context.Context, settlements []Settlement) ([]error, error) {
	errs := make([]error, len(settlements))
	var (
		open  []int
		calls []call
	)
	for i := range settlements {
		q, err := settlements[i].call()
		if err != nil {
			errs[i] = err
			continue
		}
		open, calls = append(open, i), append(calls, q)
	}
	asked := c.tier.ask()
	answers, err := c.runAll(ctx, settleScript, calls)
	if err != nil {
		return nil, fmt.Errorf("settling %d keys: %w", len(calls), fault(ctx, err))
	}
	for n, i := range open {
		if err := c.settled(asked, answers[n]); err != nil {
			errs[i] = fmt.Errorf("settling %s: %w", settlements[i].Key, err)
		}
	}
	return errs, nil
}
