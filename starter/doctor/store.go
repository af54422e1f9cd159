package doctor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"

	"belay.run/internal/run"
	"belay.run/internal/store"
	"belay.run/internal/vitals"
)

// storeRemedy is what to look at where the store cannot be used.
const storeRemedy = "is BELAY_STORE right, may this user write there, and is there room? whoever starts runs puts their sources there"

func (d *doctor) checkStore(ctx context.Context) Check {
	st, err := d.store()
	if err != nil {
		return unknown(err, storeRemedy)
	}
	if err := roundTrip(ctx, st); err != nil {
		return bad(storeRemedy, "%s: %s", st, oneLine(err))
	}
	return good("%s can be written and read", st)
}

// roundTrip writes an object, reads it and removes it.
func roundTrip(ctx context.Context, st store.Store) error {
	key, want := "doctor/"+uuid.NewString(), []byte("well")
	if _, err := st.Put(ctx, key, bytes.NewReader(want), 0); err != nil {
		return err
	}
	f, err := st.Get(ctx, key)
	if err != nil {
		return err
	}
	got, err := io.ReadAll(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("it holds something else than was written: %q", got)
	}
	if derr := st.Delete(ctx, key); err == nil {
		err = derr
	}
	return err
}

// checkShared finds workers that take work but report to another store.
func (d *doctor) checkShared(context.Context) Check {
	queues, err := d.queues()
	if err != nil {
		return unknown(err, "may this user look at task queues?")
	}
	reports, err := d.reports()
	if err != nil {
		return unknown(err, "see the check of the store")
	}
	var elsewhere []string
	for _, q := range queues {
		if q.name != run.QueueWorkflows {
			continue
		}
		for host := range q.hosts {
			if !slices.ContainsFunc(reports, func(r vitals.Report) bool { return r.Host == host }) {
				elsewhere = append(elsewhere, host)
			}
		}
	}
	slices.Sort(elsewhere)
	if len(elsewhere) > 0 {
		return bad("give workers and starters the same BELAY_STORE, on a file system that all of them mount, or redis; a worker that has just started, or was killed a moment ago, is no fault",
			"workers whose reports are not in this store: %s", strings.Join(elsewhere, ", "))
	}
	return good("%d workers report to it", len(reports))
}
