package console

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/logs"
)

// patience, tooLong and repeatEvery apply without a terminal: Watch prints a
// line about work that lasts longer than patience, Phase about work that lasts
// longer than tooLong. They repeat the line after each repeatEvery.
const (
	patience    = 2 * time.Second
	tooLong     = 10 * time.Second
	repeatEvery = time.Minute
	redrawEvery = 200 * time.Millisecond // interval between updates of a progress line on a terminal
	quietTime   = 500 * time.Millisecond // on a terminal, a Phase appears only if Watch has shown nothing for this long
)

// work is something that Watch shows. Its text returns the current progress.
type work struct{ text func() string }

// Watch shows the progress of some work until the caller calls done. On a
// terminal, it updates a progress line. Without a terminal, it prints a line
// if the work lasts longer than 2 s. Watch calls text from its own goroutines;
// if text returns "", nothing is shown.
func (p *Printer) Watch(text func() string) (done func()) {
	w := &work{text}
	p.mu.Lock()
	p.works[w] = true
	p.mu.Unlock()
	ended := p.watch(text, patience)
	return func() {
		p.mu.Lock()
		delete(p.works, w)
		p.mu.Unlock()
		ended()
	}
}

// WatchLocal is Watch for work on this machine, such as a build, that the
// hosts depend on. While the work runs, no HostProgress claims that plx waits
// for hosts.
func (p *Printer) WatchLocal(text func() string) (done func()) {
	p.mu.Lock()
	p.localWorks++
	p.mu.Unlock()
	ended := p.Watch(text)
	return sync.OnceFunc(func() {
		ended()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.localWorks--
		p.localEnded = time.Now()
	})
}

// busy reports whether work of a WatchLocal call is running. localEnded is
// when the last such work ended.
func (p *Printer) busy() (busy bool, localEnded time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.localWorks > 0, p.localEnded
}

// Phase describes a phase of a command, such as "connecting", for
// Printer.Phase.
type Phase struct {
	Text  func(elapsed time.Duration) string // returns the text to show; elapsed is how long the phase has lasted
	Hosts bool                               // true if Text names the hosts that the phase waits for
}

// Phase shows what a command is doing until the caller calls done. On a
// terminal, the text appears only while Watch shows nothing. Without a
// terminal, it is printed after 10 s, or after 2 s if phase.Hosts is set.
func (p *Printer) Phase(phase Phase) (done func()) {
	first := tooLong
	if phase.Hosts {
		first = patience
	}
	begun := time.Now()
	other := begun
	return p.watch(func() string {
		if p.anyShown() {
			other = time.Now()
		}
		if time.Since(other) < quietTime {
			return ""
		}
		return phase.Text(time.Since(begun))
	}, first)
}

// Waiting returns a Phase whose text is doing, such as "connecting". After 2 s
// the text also has the elapsed seconds and the hosts that the phase waits
// for. The function hosts returns these hosts; it may be nil.
func Waiting(doing string, hosts func() []string) Phase {
	text := func(elapsed time.Duration) string {
		var on []string
		if hosts != nil {
			on = hosts()
		}
		switch seconds := int(elapsed.Seconds()); {
		case doing == "" || elapsed < patience:
			return doing
		case len(on) > 0:
			return fmt.Sprintf("%s: waiting for %s for %ds", doing, Fold(on), seconds)
		default:
			return fmt.Sprintf("%s (%ds)", doing, seconds)
		}
	}
	return Phase{Text: text, Hosts: hosts != nil}
}

// anyShown reports whether Watch shows a text at the moment.
func (p *Printer) anyShown() bool {
	p.mu.Lock()
	works := slices.Collect(maps.Keys(p.works))
	p.mu.Unlock()
	return slices.ContainsFunc(works, func(w *work) bool { return w.text() != "" })
}

// watch shows text until done is called. Without a terminal it prints the text
// for the first time after the duration first.
func (p *Printer) watch(text func() string, first time.Duration) (done func()) {
	ended := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		if p.display.Terminal(logs.Stderr) {
			p.redraw(logs.Bottom, func() string { return p.row(text()) }, ended)
		} else {
			p.repeat(text, first, ended)
		}
	})
	return sync.OnceFunc(func() { close(ended); showing.Wait() })
}

// Status shows a status line at the bottom of a terminal until done is called.
// The function parts returns the parts of the line, the most important first.
// Parts that do not fit are left out; without parts there is no line. A part
// must be a single line without control characters, and may have colours if
// colour is true. Without a terminal, Status shows nothing.
func (p *Printer) Status(parts func(colour bool) []string) (done func()) {
	if !p.ShowsStatus() {
		return func() {}
	}
	ended := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		p.redraw(logs.Status, func() string { return p.fitStatus(parts(p.colour), p.display.Width()-1) }, ended)
	})
	return sync.OnceFunc(func() { close(ended); showing.Wait() })
}

// ShowsStatus reports whether Status shows anything.
func (p *Printer) ShowsStatus() bool { return p.status }

// fitStatus joins the parts of a status line, and leaves out those that do not fit
// into width terminal columns.
func (p *Printer) fitStatus(parts []string, width int) string {
	if len(parts) == 0 {
		return ""
	}
	line := p.prefix()
	for i, part := range parts {
		if i > 0 {
			part = " | " + part
		}
		if i > 0 && ansi.StringWidth(line)+ansi.StringWidth(part) > width {
			break
		}
		line += part
	}
	return line
}

// redraw keeps a row of the terminal up to date with text until ended is
// closed.
func (p *Printer) redraw(order int, text func() string, ended <-chan struct{}) {
	row := p.display.Row(order)
	defer row.Remove()
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		row.Set(text())
		select {
		case <-ended:
			return
		case <-tick.C:
		}
	}
}

// row returns text with the "plx: " prefix as one line, or "" if text is
// empty.
func (p *Printer) row(text string) string {
	if text == "" {
		return ""
	}
	return p.prefix() + oneLine(text)
}

// repeat prints text after the duration first, and then every minute until
// ended is closed.
func (p *Printer) repeat(text func() string, first time.Duration, ended <-chan struct{}) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ended:
			return
		case <-timer.C:
			if line := text(); line != "" {
				p.Printf("%s", line)
				timer.Reset(repeatEvery)
			} else {
				timer.Reset(first)
			}
		}
	}
}

// HostProgress shows, through Watch, for which hosts plx is waiting. Several
// goroutines may call its methods at once. A nil HostProgress shows nothing.
type HostProgress struct {
	printer *Printer
	doing   string
	total   int // number of hosts; if it is 0, the number is unknown, and the text names only the hosts that plx waits for

	mu      sync.Mutex
	ended   map[string]bool   // hosts for which End was called
	waiting []string          // hosts for which plx is waiting, in the order of their Begin calls
	notes   map[string]string // last text passed to Note, by host
	since   time.Time         // when plx began to wait for the first of the current hosts
	done    func()            // ends the call of Watch; nil while plx waits for no host
}

// NewHostProgress returns a HostProgress for work on total hosts. doing names
// the work, such as "connecting". If total is 0, the hosts are not counted.
func (p *Printer) NewHostProgress(doing string, total int) *HostProgress {
	if p == nil {
		return nil
	}
	return &HostProgress{printer: p, doing: doing, total: total, ended: map[string]bool{}, notes: map[string]string{}}
}

// Begin records that plx is waiting for a host. The caller must call End. A
// second Begin before End has no effect.
func (t *HostProgress) Begin(host string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.waiting, host) {
		return
	}
	t.waiting = append(t.waiting, host)
	delete(t.ended, host)
	if t.done == nil {
		t.since, t.done = time.Now(), t.printer.Watch(t.String)
	}
}

// Note records what a host is doing. The text is shown while this host is the
// first of those that plx waits for.
func (t *HostProgress) Note(host, text string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes[host] = text
}

// End records that plx no longer waits for a host.
func (t *HostProgress) End(host string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.ended[host] = true
	t.waiting = slices.DeleteFunc(t.waiting, func(h string) bool { return h == host })
	var done func()
	if len(t.waiting) == 0 {
		done, t.done = t.done, nil
	}
	t.mu.Unlock()
	if done != nil {
		done() // t.mu must not be held here: done waits for a running call of String, which locks t.mu
	}
}

// Stop calls End for all hosts that plx is waiting for.
func (t *HostProgress) Stop() {
	t.mu.Lock()
	waiting := slices.Clone(t.waiting)
	t.mu.Unlock()
	for _, host := range waiting {
		t.End(host)
	}
}

// String returns the progress text. After 2 s the text also names the hosts
// that plx waits for. It is empty if plx waits for no host. It is also empty
// during work on this machine on which the hosts depend, and for 2 s after
// that work.
func (t *HostProgress) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	busy, since := t.printer.busy()
	if busy || since.After(t.since) && time.Since(since) < patience {
		return ""
	}
	if since.Before(t.since) {
		since = t.since
	}
	elapsed := time.Since(since)
	waiting := fmt.Sprintf("%s for %ds", Fold(t.waiting), int(elapsed.Seconds()))
	switch {
	case len(t.waiting) == 0:
		return ""
	case t.total == 0:
		return t.doing + " " + waiting
	case elapsed < patience:
		return fmt.Sprintf("%s: %d of %s", t.doing, len(t.ended), plural.Count(t.total, "host"))
	}
	text := fmt.Sprintf("%s: %d of %s; waiting for %s", t.doing, len(t.ended), plural.Count(t.total, "host"), waiting)
	if note := t.notes[t.waiting[0]]; note != "" {
		text += fmt.Sprintf("; %s: %s", t.waiting[0], note)
	}
	return text
}

// Names joins at most five names with commas. more is the number of further
// names that the caller has not put into names.
func Names(names []string, more int) string {
	const most = 5
	if excess := len(names) - most; excess > 0 {
		names, more = names[:most], more+excess
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Transfer shows the progress of bytes that are sent to or received from
// hosts. Close pauses a transfer and Resume continues it. Several goroutines
// may call its methods at once.
type Transfer struct {
	printer *Printer
	doing   string // what the transfer does, such as "sending"

	mu    sync.Mutex
	done  func()          // ends the progress display; nil while nothing is shown
	start time.Time       // when the transfer began or was last resumed
	spent time.Duration   // duration of the transfer up to the last pause, without pauses
	moves bool            // true once Moved was called since the last Resume
	begun time.Time       // when the first bytes since the last Resume had moved; zero before that
	base  int64           // bytes that had moved before the last Resume; they do not count for the transfer rate
	last  time.Time       // when bytes last moved
	left  int64           // number of bytes that this machine itself has sent
	files map[file]moved  // progress of each file of each host
	hosts map[string]bool // hosts to or from which bytes were moved
}

// file identifies one file of a Transfer, and the host to or from which it is
// copied. part is the name that the user sees.
type file struct{ host, part, name string }

// moved is the progress of a file: how many of its total bytes have moved.
type moved struct{ bytes, total int64 }

// NewTransfer returns a Transfer. doing names the work, such as "sending". The
// caller must call Close or Finish.
func (p *Printer) NewTransfer(doing string) *Transfer {
	t := &Transfer{printer: p, doing: doing, files: map[file]moved{}, hosts: map[string]bool{}}
	t.Resume()
	return t
}

// Resume continues a paused transfer and shows its progress again. It does
// nothing if the transfer is not paused.
func (t *Transfer) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.start, t.begun, t.moves = time.Now(), time.Time{}, false
		t.done = t.printer.Watch(t.shown)
	}
}

// barWidth is the width of the progress bar between its brackets, in terminal
// columns.
const barWidth = 20

// bar returns a progress bar, such as "[====>---------------]".
func (m moved) bar() string {
	filled := min(barWidth, int(barWidth*m.bytes/m.total))
	tip := ""
	if 0 < filled && filled < barWidth {
		tip = ">"
	}
	return "[" + strings.Repeat("=", filled-len(tip)) + tip + strings.Repeat("-", barWidth-filled) + "]"
}

// shown returns the progress text, on a terminal with a progress bar in front.
func (t *Transfer) shown() string {
	text := t.String()
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.sum()
	if all.total == 0 || !t.printer.display.Terminal(logs.Stderr) {
		return text
	}
	return all.bar() + " " + text
}

// Moved records that the given number of bytes of a file have moved so far;
// total is the file's size. Call it with 0 bytes as soon as the size is known.
// It has the signature of an envsync.Progress.
func (t *Transfer) Moved(host, name string, bytes, total int64) {
	t.MovedOf(name, host, name, bytes, total)
}

// MovedOf is Moved for a file that is shown to the user under the name part.
func (t *Transfer) MovedOf(part, host, name string, bytes, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.sum().bytes
	t.files[file{host, part, name}], t.moves = moved{bytes, total}, true
	if bytes > 0 {
		t.hosts[host], t.last = true, time.Now()
		if t.begun.IsZero() {
			t.begun, t.base = time.Now(), before
		}
	}
}

// AddSent adds to the number of bytes that this machine itself has sent.
func (t *Transfer) AddSent(bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left += bytes
}

// sum returns the progress of all files together.
func (t *Transfer) sum() (all moved) {
	for _, f := range t.files {
		all.bytes, all.total = all.bytes+f.bytes, all.total+f.total
	}
	return all
}

// unfinished returns the hosts whose files are incomplete.
func (t *Transfer) unfinished() []string {
	hosts := map[string]bool{}
	for name, f := range t.files {
		if f.bytes < f.total {
			hosts[name.host] = true
		}
	}
	return slices.Sorted(maps.Keys(hosts))
}

// names joins the names of at most three files, as shown to the user. The
// function which selects the files.
func (t *Transfer) names(which func(moved) bool) string {
	all := map[string]bool{}
	for name, f := range t.files {
		if which(f) {
			all[name.part] = true
		}
	}
	const most = 3
	names := slices.Sorted(maps.Keys(all))
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// sending is the beginning of Transfer.doing for a transfer to hosts. A name
// may follow this word.
const sending = "sending"

// leastRate is how long bytes must have moved before the transfer rate is
// shown. The first bytes only fill buffers, so an earlier rate would be too
// high.
const leastRate = time.Second

// String returns the progress of all files as text, for Watch.
func (t *Transfer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.sum()
	if !t.moves {
		text := t.doing + ": nothing yet" // at first, the hosts check which files they lack
		if elapsed := time.Since(t.start); elapsed >= patience {
			text += fmt.Sprintf(" (%ds)", int(elapsed.Seconds()))
		}
		return text
	}
	doing := t.doing
	if doing == sending {
		doing += " " + t.names(func(f moved) bool { return f.total > 0 })
	}
	text := fmt.Sprintf("%s: %d%% of %s", doing, 100*all.bytes/all.total, Size(all.total))
	if len(t.hosts) > 0 && strings.HasPrefix(t.doing, sending) {
		text += " to " + plural.Count(len(t.hosts), "host")
	}
	if still := time.Since(t.last); !t.begun.IsZero() && still >= patience && all.bytes < all.total {
		text += fmt.Sprintf("; no byte for %ds", int(still.Seconds()))
		if hosts := Fold(t.unfinished()); hosts != "" { // hosts that download files themselves are not named
			text += "; waiting for " + hosts
		}
		return text
	}
	if still := time.Since(t.last); all.bytes == all.total && still >= patience {
		return text + fmt.Sprintf("; the hosts check and store it (%ds)", int(still.Seconds()))
	}
	if elapsed := time.Since(t.begun); !t.begun.IsZero() && elapsed >= leastRate {
		rate := float64(all.bytes-t.base) / elapsed.Seconds()
		text += fmt.Sprintf(", %s/s", Size(int64(rate)))
		if elapsed >= patience { // estimate the remaining time only after patience, because the rate changes too much at first
			left := time.Duration(float64(all.total-all.bytes) / rate * float64(time.Second))
			text += fmt.Sprintf(", %s left", left.Round(time.Second))
		}
	}
	return text
}

// Close pauses the transfer and ends its progress display.
func (t *Transfer) Close() {
	t.mu.Lock()
	done := t.done
	if t.done = nil; done != nil {
		t.spent += time.Since(t.start)
	}
	t.mu.Unlock()
	if done != nil {
		done() // t.mu must not be held here: done waits for a running call of shown, which locks t.mu
	}
}

// Finish ends the Transfer. If err is nil and bytes were sent, it prints their
// total and the number of bytes that this machine sent. The second number is
// smaller if hosts passed the files on to other hosts.
func (t *Transfer) Finish(err error) {
	t.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.left > 0 && len(t.hosts) > 0 {
		name := t.names(func(f moved) bool { return f.bytes > 0 })
		t.printer.Printf("sent %s (%s) to %s in %.1fs", name, Size(t.left), plural.Count(len(t.hosts), "host"), t.spent.Seconds())
	}
}
