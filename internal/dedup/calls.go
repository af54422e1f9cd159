package dedup

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// batch is how many calls go to Redis at once.
const batch = 1000

// call is one call of a script.
type call struct {
	keys []string
	args []any
}

// run runs a script under the bound of a call.
func (c *Claims) run(ctx context.Context, script *redis.Script, keys []string, args ...any) ([]any, error) {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	return list(script.Run(ctx, c.rdb, keys, args...))
}

// list is an answer as a list; a number is one of one.
func list(cmd *redis.Cmd) ([]any, error) {
	v, err := cmd.Result()
	switch v := v.(type) {
	case []any:
		return v, err
	case int64:
		return []any{v}, err
	}
	if err == nil {
		err = errDamaged
	}
	return nil, err
}

// runAll runs a script many times, in order for what shares a slot, in one round
// trip for each batch and server. Where one call fails, all have failed, though
// some may have taken effect.
func (c *Claims) runAll(ctx context.Context, script *redis.Script, calls []call) ([][]any, error) {
	answers := make([][]any, 0, len(calls))
	for len(calls) > 0 {
		n := min(len(calls), batch)
		got, err := c.runBatch(ctx, script, calls[:n])
		if err != nil {
			return nil, err
		}
		answers, calls = append(answers, got...), calls[n:]
	}
	return answers, nil
}

func (c *Claims) runBatch(ctx context.Context, script *redis.Script, calls []call) ([][]any, error) {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	got, err := c.pipeline(ctx, script, calls)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		// Each server forgets its scripts when it restarts. What was decided
		// already is decided again as it was: the owner is the same.
		if err := script.Load(ctx, c.rdb).Err(); err != nil {
			return nil, err
		}
		got, err = c.pipeline(ctx, script, calls)
	}
	return got, err
}

func (c *Claims) pipeline(ctx context.Context, script *redis.Script, calls []call) ([][]any, error) {
	cmds := make([]*redis.Cmd, len(calls))
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, call := range calls {
			cmds[i] = script.EvalSha(ctx, p, call.keys, call.args...)
		}
		return nil
	})
	// The first error that is not about a missing script says most.
	answers := make([][]any, len(calls))
	for i, cmd := range cmds {
		got, e := list(cmd)
		if e != nil && (err == nil || redis.HasErrorPrefix(err, "NOSCRIPT")) {
			err = e
		}
		answers[i] = got
	}
	if errors.Is(err, redis.Nil) {
		err = errDamaged
	}
	return answers, err
}
