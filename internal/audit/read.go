package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// page is how many entries are read at once from each tenant's stream.
	page = 200
	// readTimeout bounds the reading of one page.
	readTimeout = 5 * time.Second
	// lateness is how long after its decision an entry may be written and is
	// still found by the time of the decision: Redis may have been away.
	lateness = 24 * time.Hour
)

// Filter says which entries to read. Empty fields match all.
type Filter struct {
	// Since and Until bound the time of the decision, Until excluded.
	Since, Until time.Time
	Tenant       string
	Project      string
	Pipeline     string
	Key          string
	RootCause    Cause
	Decision     Decision
	// Limit is how many at most; 0 means all.
	Limit int
	// Oldest gives the oldest first; else the newest come first.
	Oldest bool
}

func (f *Filter) matches(e *Entry) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Project, e.Project) && is(f.Pipeline, e.Pipeline) && is(f.Key, e.Key) &&
		is(string(f.RootCause), string(e.RootCause)) && is(string(f.Decision), string(e.Decision)) &&
		(f.Since.IsZero() || !e.At.Before(f.Since)) && (f.Until.IsZero() || e.At.Before(f.Until))
}

// Read gives the entries that match, of all tenants where none is named. They
// are read page by page, as they are taken. An error ends it.
func (l *Log) Read(ctx context.Context, f Filter) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		streams, err := l.open(ctx, &f)
		left := f.Limit
		for err == nil && len(streams) > 0 {
			i := next(streams, f.Oldest)
			e := streams[i].entries[0].entry
			if f.matches(&e) {
				if !yield(e, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if err = streams[i].advance(ctx); err == nil && len(streams[i].entries) == 0 {
				streams = slices.Delete(streams, i, i+1)
			}
		}
		if err != nil {
			yield(Entry{}, err)
		}
	}
}

// Export writes the entries that match as JSON Lines, the oldest first, and
// returns how many there were.
func (l *Log) Export(ctx context.Context, w io.Writer, f Filter) (int, error) {
	f.Oldest = true
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	n := 0
	for e, err := range l.Read(ctx, f) {
		if err == nil {
			err = enc.Encode(e)
		}
		if err != nil {
			// What was read so far is worth having.
			return n, errors.Join(fmt.Errorf("exporting the audit: %w", err), out.Flush())
		}
		n++
	}
	if err := out.Flush(); err != nil {
		return n, fmt.Errorf("exporting the audit: %w", err)
	}
	return n, nil
}

// Tenants lists the tenants that ever had entries or claims, sorted.
func (l *Log) Tenants(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	tenants, err := l.rdb.SMembers(ctx, tenantsKey).Result()
	if err != nil {
		return nil, fmt.Errorf("listing the tenants of the audit: %w", err)
	}
	slices.Sort(tenants)
	return tenants, nil
}

// open reads the first page of each stream that is asked for.
func (l *Log) open(ctx context.Context, f *Filter) ([]*stream, error) {
	tenants := []string{f.Tenant}
	if f.Tenant == "" {
		var err error
		if tenants, err = l.Tenants(ctx); err != nil {
			return nil, err
		}
	}
	var open []*stream
	for _, tenant := range tenants {
		s := &stream{rdb: l.rdb, tenant: tenant, oldest: f.Oldest, from: "-", to: "+"}
		if !f.Since.IsZero() {
			s.from = strconv.FormatInt(f.Since.UnixMilli(), 10)
		}
		if !f.Until.IsZero() {
			s.to = strconv.FormatInt(f.Until.Add(lateness).UnixMilli(), 10)
		}
		if err := s.fetch(ctx); err != nil {
			return nil, err
		}
		if len(s.entries) > 0 {
			open = append(open, s)
		}
	}
	return open, nil
}

// next is the stream whose first entry comes next.
func next(streams []*stream, oldest bool) int {
	first := 0
	for i, s := range streams {
		earlier := s.entries[0].at < streams[first].entries[0].at
		if i > 0 && earlier == oldest {
			first = i
		}
	}
	return first
}

// stream reads one tenant's entries, a page at a time.
type stream struct {
	rdb      redis.UniversalClient
	tenant   string
	oldest   bool
	from, to string
	entries  []stored
	last     bool // no page follows
}

// stored is an entry and when it was written, in milliseconds.
type stored struct {
	entry Entry
	at    int64
}

// advance drops the first entry and reads the next page where it was the last.
func (s *stream) advance(ctx context.Context) error {
	s.entries = s.entries[1:]
	if len(s.entries) > 0 || s.last {
		return nil
	}
	return s.fetch(ctx)
}

func (s *stream) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var got []redis.XMessage
	var err error
	if s.oldest {
		got, err = s.rdb.XRangeN(ctx, streamKey(s.tenant), s.from, s.to, page).Result()
	} else {
		got, err = s.rdb.XRevRangeN(ctx, streamKey(s.tenant), s.to, s.from, page).Result()
	}
	if err != nil {
		return fmt.Errorf("reading the audit of tenant %s: %w", s.tenant, err)
	}
	s.last = len(got) < page
	s.entries = make([]stored, 0, len(got))
	for _, m := range got {
		e, err := decode(m)
		if err != nil {
			return fmt.Errorf("reading the audit of tenant %s: %w", s.tenant, err)
		}
		s.entries = append(s.entries, e)
	}
	if len(got) > 0 {
		after := "(" + got[len(got)-1].ID
		if s.oldest {
			s.from = after
		} else {
			s.to = after
		}
	}
	return nil
}

func decode(m redis.XMessage) (stored, error) {
	ms, _, _ := strings.Cut(m.ID, "-")
	at, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return stored{}, fmt.Errorf("entry %s: %w", m.ID, err)
	}
	text, _ := m.Values[entryField].(string)
	s := stored{at: at}
	if err := json.Unmarshal([]byte(text), &s.entry); err != nil {
		return stored{}, fmt.Errorf("entry %s: %w", m.ID, err)
	}
	if s.entry.At.IsZero() {
		s.entry.At = time.UnixMilli(at).UTC()
	}
	return s, nil
}
