package console

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// output is a buffer that several goroutines may write to.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// take returns what was written since the last call.
func (o *output) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.text.Reset()
	return o.text.String()
}

// Without a terminal, short work prints nothing. Longer work prints a line
// from time to time, with the hosts that plx waits for.
func TestProgressWithoutTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		p := NewPrinter(Terminal{Stderr: &out})
		tally := p.NewHostProgress("connecting", 8)
		for _, host := range []string{"h1", "h2", "h3"} {
			tally.Begin(host)
		}
		time.Sleep(patience - time.Second)
		tally.End("h2")
		if got := out.take(); got != "" {
			t.Errorf("after 1s: %q", got)
		}
		time.Sleep(2 * time.Second)
		if got, want := out.take(), "plx: connecting: 1 of 8 hosts; waiting for h[1,3] for 2s\n"; got != want {
			t.Errorf("after 3s: %q, want %q", got, want)
		}
		tally.End("h1")
		time.Sleep(repeatEvery)
		if got, want := out.take(), "plx: connecting: 2 of 8 hosts; waiting for h3 for 62s\n"; got != want {
			t.Errorf("after a minute: %q, want %q", got, want)
		}
		tally.End("h3")
		tally.End("h3")
		time.Sleep(2 * repeatEvery)
		if got := out.take(); got != "" {
			t.Errorf("after the end: %q", got)
		}
	})
}

// While this machine builds a program, a Tally does not claim to be waiting
// for hosts.
func TestTallyIsSilentDuringLocalBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		p := NewPrinter(Terminal{Stderr: &out})
		tally := p.NewHostProgress("probing", 2)
		tally.Begin("h1")
		tally.Begin("h2")
		built := p.WatchLocal(func() string { return "building x" })
		time.Sleep(30 * time.Second)
		if got := out.take(); got != "plx: building x\n" {
			t.Errorf("during the build: %q", got)
		}
		built()
		time.Sleep(patience + time.Second)
		if got, want := out.take(), "plx: probing: 0 of 2 hosts; waiting for h[1-2] for 2s\n"; got != want {
			t.Errorf("3s after it: %q, want %q", got, want)
		}
		tally.Stop()
	})
}

// On a terminal, a row shows the work at once, below all other output, and
// disappears when the work ends.
func TestProgressOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		p := NewPrinter(Terminal{Stderr: &out, StderrTTY: true})
		done := p.Watch(func() string { return "building x" })
		synctest.Wait()
		if got := out.take(); got != "plx: building x\x1b[K" {
			t.Errorf("at once: %q", got)
		}
		time.Sleep(time.Second)
		p.Printf("a line")
		if got := out.take(); got != "\r\x1b[Kplx: a line\nplx: building x\x1b[K" {
			t.Errorf("with a line: %q", got)
		}
		done()
		if got := out.take(); got != "\r\x1b[K" {
			t.Errorf("at the end: %q", got)
		}
	})
}

// A phase is shown, with the hosts that it waits for, while nothing else is
// shown. Without a terminal it is one line after 2 s.
func TestPhaseIsShownWhileNothingElseIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, terminal := range []bool{true, false} {
			var out output
			p := NewPrinter(Terminal{Stderr: &out, StderrTTY: terminal})
			done := p.Phase(Waiting("starting 4 tasks on 2 hosts", func() []string { return []string{"h2"} }))
			see := func(after time.Duration, shown, piped string) {
				t.Helper()
				time.Sleep(after)
				synctest.Wait()
				got, want := out.take(), piped
				if terminal {
					want = shown
				}
				if !strings.Contains(got, want) || want == "" && strings.Contains(got, "starting") {
					t.Errorf("terminal %t: %q, want %q", terminal, got, want)
				}
			}
			see(2*time.Second-redrawEvery/2, "plx: starting 4 tasks on 2 hosts\x1b", "")
			see(3*time.Second, "starting 4 tasks on 2 hosts: waiting for h2 for 4s", "plx: starting 4 tasks on 2 hosts: waiting for h2 for 2s\n")
			other := p.Watch(func() string { return "sending" })
			time.Sleep(redrawEvery)
			out.take()
			see(time.Second, "", "")
			other()
			see(5*time.Second, "waiting for h2 for 10s", "")
			see(45*time.Second, "waiting for h2 for 50s", "")
			done()
			out.take()
			see(repeatEvery, "", "")
		}
	})
}

// On a terminal a Transfer shows a progress bar.
func TestTransferBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		p := NewPrinter(Terminal{Stderr: &out, StderrTTY: true})
		bar := p.NewTransfer("sending")
		bar.Moved("h1", "plx", 0, 40<<20)
		bar.Moved("h1", "plx", 10<<20, 40<<20)
		out.take()
		time.Sleep(2 * redrawEvery)
		if got, want := out.take(), "plx: [====>---------------] sending plx: 25% of 40.0 MiB to 1 host"; !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		bar.Moved("h1", "plx", 40<<20, 40<<20)
		if got, want := bar.shown(), "[====================] sending plx: 100% of"; !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		bar.Close()
	})
}

// A Transfer shows the sum over all files and hosts. It shows no transfer rate
// until bytes have moved for a second.
func TestTransferProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out output
		p := NewPrinter(Terminal{Stderr: &out})
		bar := p.NewTransfer("sending")
		defer bar.Close()
		if got := bar.String(); got != "sending: nothing yet" {
			t.Errorf("nothing to send: %q", got)
		}
		for _, host := range []string{"h1", "h2"} {
			bar.Moved(host, "plx", 0, 30<<20)
			bar.Moved(host, "train", 0, 20<<20)
		}
		bar.Moved("h1", "plx", 10<<20, 30<<20)
		if got, want := bar.String(), "sending plx and train: 10% of 100.0 MiB to 1 host"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		time.Sleep(2 * time.Second)
		bar.Moved("h1", "plx", 30<<20, 30<<20)
		bar.Moved("h2", "plx", 10<<20, 30<<20)
		if got, want := bar.String(), "sending plx and train: 40% of 100.0 MiB to 2 hosts, 20.0 MiB/s, 3s left"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		time.Sleep(time.Second)
		bar.Moved("h2", "plx", 11<<20, 30<<20)
		if got, want := bar.String(), "sending plx and train: 41% of 100.0 MiB to 2 hosts, 13.7 MiB/s, 4s left"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		bar.Moved("h1", "train", 20<<20, 20<<20)
		time.Sleep(patience)
		if got, want := bar.String(), "sending plx and train: 61% of 100.0 MiB to 2 hosts; no byte for 2s; waiting for h2"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		// The last line counts only bytes that this machine has sent, and no
		// time of pauses.
		bar.AddSent(30 << 20)
		bar.Close()
		time.Sleep(time.Minute)
		bar.Resume()
		if got := bar.String(); got != "sending: nothing yet" {
			t.Errorf("after a pause: %q", got)
		}
		bar.MovedOf("packages", "h1", "a", 1<<20, 1<<20)
		bar.MovedOf("packages", "h1", "b", 1<<20, 1<<20)
		bar.AddSent(2 << 20)
		out.take()
		time.Sleep(time.Second)
		bar.Finish(nil)
		if got := out.take(); got != "plx: sent packages, plx and train (32.0 MiB) to 2 hosts in 6.0s\n" {
			t.Errorf("%q", got)
		}
	})
}

// The status line is the last row and has the parts that fit. It is not shown
// without a terminal, on a dumb terminal, without parts, or if the user turned
// it off.
func TestStatusLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var parts atomic.Pointer[[]string]
		parts.Store(&[]string{"running 5s", "step 12/100", "loss 0.31"})
		status := func(bool) []string { return *parts.Load() }
		var out output
		p := NewPrinter(Terminal{Stderr: &out, StderrTTY: true})
		for range 20 { // more parts than fit into the line
			defer p.Watch(func() string { return "sending" })()
		}
		done := p.Status(status)
		time.Sleep(2 * redrawEvery)
		if got := out.take(); !strings.HasSuffix(got, "\nplx: running 5s | step 12/100 | loss 0.31\x1b[K") {
			t.Errorf("%q", got)
		}
		parts.Store(new([]string))
		time.Sleep(2 * redrawEvery)
		if got := out.take(); strings.Contains(got, "running") || got == "" {
			t.Errorf("without parts: %q", got)
		}
		parts.Store(&[]string{"running 6s"})
		time.Sleep(2 * redrawEvery)
		done()
		out.take()
		time.Sleep(2 * redrawEvery)
		if got := out.take(); got != "" {
			t.Errorf("at its end: %q", got)
		}
		for width, want := range map[int]string{80: "plx: running 6s | step 12/100 | loss 0.31", 40: "plx: running 6s | step 12/100", 20: "plx: running 6s", 1: "plx: running 6s"} {
			if got := p.fitStatus([]string{"running 6s", "step 12/100", "loss 0.31"}, width); got != want {
				t.Errorf("%d cells: %q, want %q", width, got, want)
			}
		}
		for name, to := range map[string]Terminal{"pipe": {}, "dumb": {StderrTTY: true, Dumb: true}, "--no-status": {StderrTTY: true, NoStatus: true}} {
			to.Stderr = &out
			defer NewPrinter(to).Status(status)()
			time.Sleep(2 * redrawEvery)
			if got := out.take(); got != "" {
				t.Errorf("%s: %q", name, got)
			}
		}
	})
}
