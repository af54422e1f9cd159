package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"belay.run/internal/dedup"
	"belay.run/internal/durations"
	"belay.run/internal/liveness"
	"belay.run/internal/spec"
	"belay.run/internal/tree"
)

type checkFlags struct {
	scopeFlags

	inputs     []string
	inputsFile string
	dedupKey   string
	name       string
	requestID  string
	output     *format
}

func dedupCheckCommand(a *app) *cobra.Command {
	f := &checkFlags{}
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Tell whether a request would be a duplicate, and of what, without making it",
		Long: "Tells whether a run of FILE with these inputs would be a duplicate, and of what.\n" +
			"Nothing is claimed and nothing is started. With --key instead of FILE it tells the\n" +
			"same of a key of a pipeline or, with --step, of a step.\n\n" +
			"Exit code 0: it would run. 3: it would be a duplicate.",
		Args: args(cobra.MaximumNArgs(1)),
	}
	cmd.ValidArgsFunction = yamlFiles
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.inputs, "input", "i", nil, "an input, as `name=value`; may be given more than once")
	flags.StringVar(&f.inputsFile, "inputs-file", "", "a YAML or JSON `file` with inputs; -i wins over it")
	flags.StringVar(&f.dedupKey, "dedup-key", "", "a `key` that stands in for the one in FILE")
	flags.StringVar(&f.name, "key", "", "ask for this `key` instead of a FILE")
	flags.StringVar(&f.requestID, "request-id", "", "also ask whether this request has begun a run before")
	f.output = outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		q, err := a.question(f, argv)
		if err != nil {
			return err
		}
		return a.withClaims(cmd.Context(), func(ctx context.Context, conn *Connection, rdb redis.UniversalClient, claims *dedup.Claims) error {
			doc := q.doc()
			if q.key.Name != "" || q.requestID != "" {
				c := &checker{
					claims: claims, alive: liveness.New(conn.Temporal, conn.Namespace).Ask,
					durations: durations.New(rdb), runs: conn.runs(), now: time.Now(),
				}
				if err := c.check(ctx, q, doc); err != nil {
					return err
				}
			}
			return a.showCheck(doc, *f.output)
		})
	}
	return cmd
}

// question is what is asked: a key, and what is known of the request.
type question struct {
	key         dedup.Key
	pipeline    string
	requestID   string
	fingerprint string
	// dedup and timeout are those of the file; dedup is nil where none was read.
	dedup   *spec.Dedup
	timeout time.Duration
}

// question reads what the flags and the file ask for.
func (a *app) question(f *checkFlags, argv []string) (*question, error) {
	if len(argv) == 0 {
		if f.dedupKey != "" || len(f.inputs) > 0 || f.inputsFile != "" {
			return nil, usage("--dedup-key and inputs go with a FILE; ask for a key alone by --key")
		}
		if f.name == "" {
			return nil, usage("what is asked for? give a FILE, or a key by --key")
		}
		key, err := f.key(f.name)
		if err != nil {
			return nil, err
		}
		return &question{key: key, pipeline: f.pipeline, requestID: f.requestID}, nil
	}
	if f.name != "" || f.step || f.pipeline != "" {
		return nil, usage("--key, --step and --pipeline go without a FILE, which says them itself")
	}
	plan, err := a.plan(argv[0], f)
	if err != nil {
		return nil, err
	}
	if f.dedupKey != "" {
		if err := giveKey(plan, f.dedupKey); err != nil {
			return nil, err
		}
	}
	q := &question{pipeline: plan.Name, requestID: f.requestID, dedup: plan.Dedup, timeout: plan.Timeout}
	name, err := plan.DedupKey(f.tenant, f.project)
	if err != nil {
		return nil, invalidFile(err)
	}
	if q.fingerprint, err = plan.Fingerprint(); err != nil {
		return nil, err
	}
	q.key = dedup.Key{Tenant: f.tenant, Project: f.project, Pipeline: plan.Name, Name: name}
	return q, nil
}

// plan reads a file and binds its inputs.
func (a *app) plan(path string, f *checkFlags) (*spec.Plan, error) {
	text, err := a.readFile(path)
	if err != nil {
		return nil, err
	}
	inputs, err := readInputs(f.inputsFile, f.inputs)
	if err != nil {
		return nil, err
	}
	file, report := spec.Parse(path, text)
	if err := report.Err(); err != nil {
		return nil, invalidFile(err)
	}
	plan, err := file.Plan(inputs)
	if err != nil {
		return nil, invalidFile(err)
	}
	return plan, nil
}

// checkDoc is what check prints under -o json.
type checkDoc struct {
	Duplicate bool   `json:"duplicate"`
	Tenant    string `json:"tenant"`
	Project   string `json:"project"`
	Pipeline  string `json:"pipeline"`
	Key       string `json:"key"`
	// State is that of the claim, or of what else was found: free, running,
	// completed, failed, canceled, released, dead, or redelivered.
	State string `json:"state"`
	// Would is what would be done: run, attach, reject, replace or answer.
	Would string `json:"would"`
	// DuplicateOf is the run that holds the key, or held it last, Node its step.
	DuplicateOf string     `json:"duplicate_of,omitempty"`
	Node        string     `json:"node,omitempty"`
	By          string     `json:"by,omitempty"`
	ClaimedAt   *time.Time `json:"claimed_at,omitempty"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	// Until is the end of the window.
	Until *time.Time `json:"until,omitempty"`
	// Mismatch: the two have other inputs.
	Mismatch bool   `json:"mismatch"`
	Reason   string `json:"reason"`
}

// doc is the answer to a question about a key that nobody knows.
func (q *question) doc() *checkDoc {
	doc := &checkDoc{
		Tenant: q.key.Tenant, Project: q.key.Project, Pipeline: q.pipeline, Key: q.key.Name,
		State: stateFree, Would: wouldRun, Reason: "nothing holds this key",
	}
	if q.key.Name == "" {
		doc.Reason = "the pipeline has no key: every request is one of its own"
	}
	return doc
}

func (a *app) showCheck(doc *checkDoc, out format) error {
	var err error
	if out == formatJSON {
		err = writeJSON(a.Out, doc)
	} else {
		err = writeCheck(a.Out, doc)
	}
	if err == nil && doc.Duplicate {
		return &ExitError{Code: ExitRejected}
	}
	return err
}

// writeCheck says it in words.
func writeCheck(w io.Writer, d *checkDoc) error {
	var b strings.Builder
	switch {
	case d.Duplicate:
		fmt.Fprintf(&b, "duplicate of %s\n", tree.Clean(d.DuplicateOf))
	case d.Would == wouldReplace:
		fmt.Fprintf(&b, "would run, and cancel %s\n", tree.Clean(d.DuplicateOf))
	default:
		b.WriteString("would run\n")
	}
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", name, tree.Clean(value))
		}
	}
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.Local().Format(time.DateTime)
	}
	row("key", d.Key)
	row("state", d.State)
	row("step", d.Node)
	row("by", d.By)
	row("claimed", at(d.ClaimedAt))
	row("ended", at(d.EndedAt))
	row("blocks to", at(d.Until))
	if d.Duplicate {
		row("would", d.Would)
	}
	if d.Mismatch {
		row("inputs", "are others than those of that run")
	}
	row("because", d.Reason)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}
