package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/tree"
)

const (
	// batchLines is how often a line is written where nothing can be redrawn.
	batchLines = 5 * time.Second
	// barWidth is how wide the bar is, in columns.
	barWidth = 30
	// rateWindow is how far back the rate looks.
	rateWindow = 5 * time.Second
)

// batchBar shows how far a batch is: a bar that is redrawn on a terminal, a line
// now and then elsewhere. It is safe for concurrent use.
type batchBar struct {
	mu     sync.Mutex
	w      io.Writer
	now    func() time.Time
	term   *terminal
	screen *tree.Screen
	said   time.Time
	last   *batch.Document
	seen   []sighting
}

// sighting is how far the batch was at a time.
type sighting struct {
	at    time.Time
	ended int
}

func newBatchBar(w io.Writer, now func() time.Time) *batchBar {
	b := &batchBar{w: w, now: now, said: now()}
	if t := terminalOf(w); t.redraws() {
		b.term, b.screen = t, tree.NewScreen(w)
	}
	return b
}

// show takes how the batch stands. One that stands behind what was seen before
// was looked at while a part of it ended.
func (b *batchBar) show(d *batch.Document) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last != nil && d.Ended() < b.last.Ended() {
		d.Counts = b.last.Counts
	}
	b.last = d
	at := b.now()
	b.seen = append(b.seen, sighting{at, d.Ended()})
	for len(b.seen) > 2 && at.Sub(b.seen[1].at) >= rateWindow {
		b.seen = b.seen[1:]
	}
	b.draw(at)
}

// draw writes what is known. What cannot be written shows with the summary.
func (b *batchBar) draw(at time.Time) {
	line := batchLine(b.last, b.rate())
	if b.screen != nil {
		width, _ := b.term.size()
		_ = b.screen.Draw([]string{bar(b.last, b.term.style.ASCII) + " " + line}, width)
		return
	}
	if at.Sub(b.said) >= batchLines {
		b.said = at
		_, _ = fmt.Fprintf(b.w, "%s %s\n", at.Format(time.TimeOnly), line)
	}
}

// rate is how many tasks have ended in a second, lately.
func (b *batchBar) rate() float64 {
	if len(b.seen) < 2 {
		return 0
	}
	first, last := b.seen[0], b.seen[len(b.seen)-1]
	return float64(last.ended-first.ended) / last.at.Sub(first.at).Seconds()
}

// notice says something about the command itself.
func (b *batchBar) notice(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
	_, _ = fmt.Fprintln(b.w, tree.Clean(text)) // as in draw
}

func (b *batchBar) clear() {
	if b.screen == nil {
		return
	}
	width, _ := b.term.size()
	_ = b.screen.Clear(width) // as in draw
}

// finish ends the display.
func (b *batchBar) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clear()
}

// bar is how far the batch is, as a picture.
func bar(d *batch.Document, ascii bool) string {
	full, empty := "█", "░"
	if ascii {
		full, empty = "#", "."
	}
	n := 0
	if d.Total > 0 {
		n = min(barWidth, barWidth*d.Ended()/d.Total)
	}
	return strings.Repeat(full, n) + strings.Repeat(empty, barWidth-n)
}

// batchLine is how far the batch is, in words.
func batchLine(d *batch.Document, rate float64) string {
	percent := 0
	if d.Total > 0 {
		percent = 100 * d.Ended() / d.Total
	}
	words := []string{fmt.Sprintf("%d%% %s of %s", percent, thousands(d.Ended()), thousands(d.Total))}
	if rate > 0 {
		left := time.Duration(float64(d.Total-d.Ended()) / rate * float64(time.Second))
		words = append(words, thousands(int(rate))+"/s", tree.Duration(left)+" left")
	}
	for _, c := range []struct {
		n    int
		what string
	}{{d.Failed, "failed"}, {d.Duplicate, "duplicate"}, {d.Retried, "retried"}} {
		if c.n > 0 {
			words = append(words, thousands(c.n)+" "+c.what)
		}
	}
	if d.Status != run.Running {
		words = append(words, tree.StatusWords(d.Status))
	}
	return strings.Join(append(words, d.Notes...), ", ")
}

// batchSummary says how a batch ended, or stands.
func batchSummary(d *batch.Document, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s of %s tasks in %s (%s/s)", tree.StatusWords(d.Status), thousands(d.Ended()), thousands(d.Total),
		tree.Duration(elapsed(d, now)), thousands(int(d.Rate)))
	if why := tree.CauseWords(d.Cause, ""); why != "" {
		b.WriteString(": " + why)
	}
	fmt.Fprintf(&b, "\n  succeeded %d, failed %d, duplicate %d, skipped %d, not started %d; retried %d\n",
		d.Succeeded, d.Failed, d.Duplicate, d.Skipped, d.NotStarted, d.Retried)
	for i := range d.Failures {
		f := &d.Failures[i]
		fmt.Fprintf(&b, "  line %d (%s): %s\n", f.Line, tree.Clean(f.ID), tree.Clean(f.Message))
	}
	if more := d.Failed - len(d.Failures); len(d.Failures) > 0 && more > 0 {
		fmt.Fprintf(&b, "  … and %d more that failed\n", more)
	}
	for _, n := range d.Notes {
		fmt.Fprintf(&b, "  note: %s\n", tree.Clean(n))
	}
	return b.String()
}

// thousands is a number as people read it.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
