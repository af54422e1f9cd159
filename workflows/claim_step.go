package workflows

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/dedup"
	"belay.run/internal/expr"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// stepClaim evaluates the key of a step; nil where it has none. No two steps of a
// stage may have one key: which of them is to run nobody could say.
func (s *stage) stepClaim(st *spec.Step, node string, env map[string]string, with map[string]any) (*activities.Claiming, error) {
	if st.Dedup == nil {
		return nil, nil //nolint:nilnil // no key
	}
	scope := s.scope()
	scope["env"] = texts(env)
	key, err := expr.String(st.Dedup.Key, scope)
	if err == nil {
		err = spec.CheckKey(key)
	}
	if err != nil {
		return nil, fmt.Errorf("dedup.key: %w", err)
	}
	if other := s.keys[key]; other != "" && other != node {
		return nil, fmt.Errorf("dedup.key: %q is also that of %s in this run: the keys of two steps must differ", key, other)
	}
	s.keys[key] = node
	fingerprint, err := stepFingerprint(st, env, with)
	if err != nil {
		return nil, err
	}
	return &activities.Claiming{
		Key:         dedup.Key{Tenant: s.in.Tenant, Project: s.in.Project, Name: key},
		Owner:       dedup.Owner{RunKey: s.in.RunKey, Node: node, WorkflowID: s.in.ID, RunID: s.in.RunID},
		Request:     s.in.Request,
		Delivery:    s.in.Delivery,
		Rerun:       s.in.Rerun,
		Pipeline:    s.in.Pipeline,
		Fingerprint: fingerprint,
		OnDuplicate: st.Dedup.OnDuplicate, OnMismatch: st.Dedup.OnMismatch,
		Risk: st.Risk, ClaimTimeout: st.Dedup.ClaimTimeout, Window: st.Dedup.Window, Timeout: st.Timeout,
	}, nil
}

// stepFingerprint tells steps with other inputs apart: their own variables, and
// what is handed to what they use.
func stepFingerprint(st *spec.Step, env map[string]string, with map[string]any) (string, error) {
	own := make(map[string]string, len(st.Env))
	for _, name := range slices.Sorted(maps.Keys(st.Env)) {
		own[name] = env[name]
	}
	text, err := json.Marshal([]any{own, with})
	if err != nil {
		return "", fmt.Errorf("writing the inputs of the step: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// settleClaim ends the claim of a step whose node has ended, however it ended.
// One whose stage begins anew is not at its end.
func (s *stage) settleClaim(ctx workflow.Context, st *spec.Step, out *outcome) {
	claim := s.claims[st.Name]
	delete(s.claims, st.Name)
	if claim == nil || s.again || out.status == run.Duplicate || (out.status == run.Succeeded && out.result.Claim == nil) {
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	var claims *activities.Claims
	var res activities.Settled
	took := out.result.EndedAt.Sub(out.result.StartedAt)
	opts := settleOptions(out.status, st.Dedup.ClaimTimeout)
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(d, opts), claims.SettleStep, activities.SettleInput{
		Claiming: *claim, Record: out.result.Claim, Took: max(took, 0),
		Result: dedup.Result{Status: out.status, ExitCode: out.result.ExitCode, Cause: out.cause, Outputs: out.result.Outputs},
	}).Get(d, &res)
	if err != nil {
		res.Note = fmt.Sprintf("the claim of key %q could not be settled; others see it when the run is over: %v", claim.Key.Name, err)
	}
	if res.Note != "" {
		s.doc.Notes = append(s.doc.Notes, claim.Owner.Node+": "+res.Note)
	}
}
