package spec

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
	"belay.run/internal/run"
)

// maxLegWork bounds how many legs are compared, over all keys of a file. What is
// not compared here is found when it runs.
const maxLegWork = 200_000

// keyedStep is a step with a key.
type keyedStep struct {
	// path is how people find it: stage/step.
	path string
	at   *yaml.Node
	// stage is nil for the finally steps of the pipeline.
	stage *rawStage
	// made is what the key comes to besides its text: variables of the step and
	// of the stage, and what is read of the stage itself.
	made string
	// legs are the parts of the legs of a matrix that the key reads.
	legs []string
}

// noteKey checks that the legs of a matrix do not claim one key, as each of them
// runs the step, and remembers the step for sameKeys.
func (c *checker) noteKey(raw rawStep, stage *rawStage, layers []envLayer, k checkedKey) {
	if k.broken {
		return
	}
	key := raw.dedup.v.key
	s := keyedStep{path: run.StepNode(run.FinallyStage, raw.name.v), at: key.node, stage: stage, legs: []string{""}}
	if stage != nil {
		s.path = run.StepNode(stage.name.v, raw.name.v)
	}
	s.made = c.ownPart(stage, layers, k)
	if stage != nil && stage.matrix.given() {
		s.legs = c.partsOfLegs(key, stage, k)
	}
	c.keyed[key.v] = append(c.keyed[key.v], s)
}

// partsOfLegs are what a key reads of each leg. They have to differ, but where
// it reads the steps of the leg too, which may tell it apart.
func (c *checker) partsOfLegs(key val[string], stage *rawStage, k checkedKey) []string {
	keys, legs := namesOf("matrix", k.origins), c.legs(stage.name.v)
	if len(keys) == 0 {
		c.p.errorf(key.node, "add one of its keys: ${{ matrix."+c.someMatrixKey(stage)+" }}",
			"the key does not read matrix: all legs of the stage %s would have the same", stage.name.v)
		return nil
	}
	if !c.afford(len(legs)) {
		return nil
	}
	readsSteps := slices.ContainsFunc(k.origins, func(o origin) bool { return o.Path[0] == "steps" })
	first := map[string]run.Leg{}
	for _, leg := range legs {
		part := project(leg, keys)
		if other := first[part]; other != nil && !readsSteps {
			c.p.errorf(key.node, "read the other keys of the matrix too",
				"the legs %s and %s have the same key: it reads %s only", other, leg, writtenKeys(keys))
			return nil
		}
		first[part] = leg
	}
	return slices.Sorted(maps.Keys(first))
}

// afford reports whether so many more legs may be compared.
func (c *checker) afford(legs int) bool {
	c.legWork += legs
	return c.legWork <= maxLegWork
}

// sameKeys refuses two steps of the pipeline with one key: the second would wait
// for the first, or take its result for its own.
func (c *checker) sameKeys() {
	for _, text := range slices.Sorted(maps.Keys(c.keyed)) {
		if same := c.keyed[text]; len(same) > 1 {
			c.sameText(same)
		}
	}
}

// sameText finds those that have one key among steps whose keys have one text.
func (c *checker) sameText(steps []keyedStep) {
	type place struct {
		stage *rawStage
		made  string
	}
	byStage, byKey := map[place]*keyedStep{}, map[string]*keyedStep{}
	for i := range steps {
		s := &steps[i]
		other := byStage[place{s.stage, s.made}]
		if other == nil && c.afford(len(s.legs)) {
			for _, leg := range s.legs {
				id := s.made + "\x00" + leg
				if byKey[id] == nil {
					byKey[id] = s
				} else if other == nil {
					other = byKey[id]
				}
			}
		}
		if other != nil {
			c.p.errorf(s.at, "add what tells them apart, such as the name of the step",
				"the step %s has the same key as %s (line %d)", s.path, other.path, other.at.Line)
			continue
		}
		byStage[place{s.stage, s.made}] = s
	}
}

// ownPart is what of the key is the step's or the stage's: it differs though the
// text is the same.
func (c *checker) ownPart(stage *rawStage, layers []envLayer, k checkedKey) string {
	var own strings.Builder
	for _, o := range k.origins {
		if stage != nil && (o.Path[0] == "stage" || o.Path[0] == "steps") {
			own.WriteString(stage.name.v + "\n")
			break
		}
	}
	for _, variable := range k.variables {
		sum := c.madeOf(variable, layers).sum
		own.Write(sum[:])
	}
	return own.String()
}

func writtenKeys(keys []string) string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = expr.Written("matrix", k)
	}
	return joined(out, "and")
}

// project is what of a leg some keys of it say, for comparison only.
func project(leg run.Leg, keys []string) string {
	if len(keys) == 1 {
		return leg[keys[0]] // a value is never empty
	}
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(leg[k])
		b.WriteByte('\n') // in no value
	}
	return b.String()
}

func (c *checker) someMatrixKey(stage *rawStage) string {
	for _, leg := range c.legs(stage.name.v) {
		for _, k := range slices.Sorted(maps.Keys(leg)) {
			return k
		}
	}
	return "NAME"
}
