package reservation

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// agents answer, and note what they were asked, host by host.
type agents struct {
	mu     sync.Mutex
	asked  []string // such as "a take"
	answer func(host, ask string) protocol.Reservation
}

func (a *agents) note(host, ask string) protocol.Reservation {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, host+" "+ask)
	return a.answer(host, ask)
}

// words returns what was asked.
func (a *agents) words() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.asked, ", ")
}

// group returns the named hosts, with the agents.
func (a *agents) group(names ...string) (all group) {
	for _, name := range names {
		all = append(all, &host{Host: hosts.NewHost(hostfile.Host{Name: name}, nil), ask: func(_ context.Context, ask string) (protocol.Reservation, error) {
			return a.note(name, ask), nil
		}})
	}
	return all
}

// The first host is asked alone, nothing is held while another launch has one of the locks,
// and nobody overtakes.
func TestTakeAllOrNone(t *testing.T) {
	for name, c := range map[string]struct {
		ahead, cause map[string]string // by host: a ticket that comes first, and why it does not get the locks
		place        int
		why          string
		asked        string
	}{
		"all are free": {nil, nil, 1, "", "a queue, b queue, c queue, a take, b take, c take"},
		"the first host is booked": {nil, map[string]string{"a": "held"}, 1, "host a: held",
			"a queue, b queue, c queue, a take, a drop, b drop, c drop"},
		"others are booked": {nil, map[string]string{"b": "held", "c": "held too"}, 1, "host b: held; host c: held too",
			"a queue, b queue, c queue, a take, b take, c take, a drop, b drop, c drop"},
		"one launch is before it on two hosts": {map[string]string{"a": "1", "c": "1"}, nil, 2, "", "a queue, b queue, c queue"},
		"two launches are before it":           {map[string]string{"a": "1", "c": "2"}, nil, 3, "", "a queue, b queue, c queue"},
	} {
		a := &agents{answer: func(host, ask string) (b protocol.Reservation) {
			if c.ahead[host] != "" {
				b.Ahead = []string{c.ahead[host]}
			}
			if ask == protocol.ReserveTake {
				b.Cause = c.cause[host]
			}
			return b
		}}
		place, why, err := a.group("a", "b", "c").take(t.Context())
		if err != nil || place != c.place || why != c.why {
			t.Errorf("%s: place %d, %q, %v", name, place, why, err)
		}
		if got := steps(a.words()); got != c.asked {
			t.Errorf("%s: asked %s\nwant %s", name, got, c.asked)
		}
	}
}

// steps sorts what was asked of several hosts at once.
func steps(asked string) string {
	words := strings.Split(asked, ", ")
	for from := 0; from < len(words); {
		to := from
		for to < len(words) && words[to][2:] == words[from][2:] {
			to++
		}
		slices.Sort(words[from:to])
		from = to
	}
	return strings.Join(words, ", ")
}

// newRequest returns a request whose messages are written to out.
func newRequest(out io.Writer, limit time.Duration, busy func() (string, error)) Request {
	return Request{Limit: limit, Printer: console.NewPrinter(console.Terminal{Stdout: io.Discard, Stderr: out}),
		Busy: func(context.Context) (string, error) { return busy() }}
}

// What a launch waits for is printed when it changes, and is in the error when its time is over.
func TestWaitPrintsCauseAndTimesOut(t *testing.T) {
	free := func() (string, error) { return "", nil }
	for name, c := range map[string]struct {
		answer protocol.Reservation
		busy   func() (string, error)
		want   string // the error; "": none
		last   string // what was asked last
	}{
		"free":            {protocol.Reservation{}, free, "", "a take"},
		"behind another":  {protocol.Reservation{Ahead: []string{"1"}}, free, "no GPUs within 1ns: place 2 in the queue", "a queue"},
		"booked":          {protocol.Reservation{Cause: "held"}, free, "no GPUs within 1ns: place 1 in the queue: host a: held", "a drop"},
		"in use":          {protocol.Reservation{}, func() (string, error) { return "GPU 1 by python", nil }, "no GPUs within 1ns: place 1 in the queue: GPU 1 by python", "a drop"},
		"a host is gone":  {protocol.Reservation{}, func() (string, error) { return "", errors.New("lost") }, "lost", "a drop"},
		"lost and booked": {protocol.Reservation{Cause: "held"}, func() (string, error) { return "", errors.New("lost") }, "held", "a drop"},
	} {
		a := &agents{answer: func(_, ask string) (b protocol.Reservation) {
			b.Ahead = c.answer.Ahead
			if ask == protocol.ReserveTake {
				b.Cause = c.answer.Cause
			}
			return b
		}}
		var out strings.Builder
		err := newRequest(&out, 1, c.busy).wait(t.Context(), a.group("a"))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if words := a.words(); !strings.HasSuffix(words, c.last) {
			t.Errorf("%s: asked %s", name, words)
		}
		if _, why, found := strings.Cut(c.want, "1ns: "); found && strings.Count(out.String(), "waiting for GPUs: "+why+"\n") != 1 {
			t.Errorf("%s: printed %q", name, out.String())
		}
	}
}

// A launch whose user interrupts it no longer waits.
func TestWaitIsInterrupted(t *testing.T) {
	a := &agents{answer: func(string, string) protocol.Reservation { return protocol.Reservation{Ahead: []string{"1"}} }}
	all := a.group("a")
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("interrupted")
	var out strings.Builder
	ended := make(chan error)
	go func() {
		ended <- newRequest(&out, time.Hour, nil).wait(ctx, all)
	}()
	for a.words() == "" {
		time.Sleep(time.Millisecond)
	}
	cancel(stopped)
	select {
	case err := <-ended:
		if !errors.Is(err, stopped) {
			t.Errorf("got %v", err)
		}
	case <-time.After(patience.Limit):
		t.Fatal("it still waits")
	}
}

// Tickets sort by the time at which launches began.
func TestTicketsSortByTime(t *testing.T) {
	first := NewTicket()
	for now := time.Now(); !time.Now().After(now); {
	}
	if second := NewTicket(); first >= second || len(second) > 24 {
		t.Errorf("%s, then %s", first, second)
	}
}
