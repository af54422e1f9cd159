package workflows

import (
	"maps"

	"belay.run/internal/expr"
	"belay.run/internal/run"
)

// scope is what expressions inside the stage may read now.
func (s *stage) scope() expr.Scope {
	scope := make(expr.Scope, len(s.in.Scope)+4)
	maps.Copy(scope, s.in.Scope)
	scope["env"] = texts(s.env)
	scope["matrix"] = texts(s.in.Leg)
	scope["stage"] = map[string]any{"name": s.doc.Name, "status": string(s.statusSoFar())}
	steps := make(map[string]any, len(s.doc.Steps)+len(s.groups))
	for i := range s.doc.Steps {
		st := &s.doc.Steps[i]
		steps[st.Name] = stepScope(st)
	}
	for name, status := range s.groups {
		steps[name] = map[string]any{"status": string(status)}
	}
	scope["steps"] = steps
	return scope
}

// statusSoFar is how the stage would end now.
func (s *stage) statusSoFar() run.Status {
	switch {
	case s.halt.on():
		return s.halt.status
	case s.failed.status != "":
		return s.failed.status
	case s.bodyOver:
		return run.Succeeded
	}
	return run.Running
}

func stepScope(st *run.Step) map[string]any {
	out := map[string]any{"status": string(st.Status), "outputs": texts(st.Outputs)}
	if st.ExitCode != nil {
		out["exit_code"] = *st.ExitCode
	}
	return out
}

// stageScope is what later stages read of a stage: its state, and the outputs of
// its steps, together and step by step; of a matrix stage, leg by leg.
func stageScope(n *node) map[string]any {
	out := map[string]any{"status": string(n.status)}
	if n.spec.Matrix == nil {
		l := n.legs[0]
		steps := make(map[string]any, len(l.steps))
		for i := range l.steps {
			steps[l.steps[i].Name] = stepScope(&l.steps[i])
		}
		out["steps"], out["outputs"] = steps, outputsOf(l.steps)
		return out
	}
	legs := make(map[string]any, len(n.legs))
	for _, l := range n.legs {
		legs[l.doc.Leg.String()] = map[string]any{"status": string(l.doc.Status), "outputs": outputsOf(l.steps)}
	}
	out["legs"] = legs
	return out
}

// outputsOf joins the outputs of all steps. A name that two of them declare is
// refused where it is read this way.
func outputsOf(steps []run.Step) map[string]any {
	out := map[string]any{}
	for i := range steps {
		maps.Copy(out, texts(steps[i].Outputs))
	}
	return out
}

// texts makes a map of strings readable by expressions.
func texts[M ~map[string]string](m M) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// evaluateEnv evaluates the stage's environment over the pipeline's.
func (s *stage) evaluateEnv() error {
	s.env = maps.Clone(s.in.Env)
	if s.env == nil {
		s.env = map[string]string{}
	}
	env, err := evaluate(s.spec.Env, s.scope())
	if err != nil {
		return err
	}
	maps.Copy(s.env, env)
	return nil
}
