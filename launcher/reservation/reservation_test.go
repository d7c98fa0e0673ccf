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

// agents stands for the agents of several hosts. It records the requests that
// each host gets.
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

// group returns hosts with the given names, whose requests a answers.
func (a *agents) group(names ...string) (all group) {
	for _, name := range names {
		all = append(all, &host{Host: hosts.NewHost(hostfile.Host{Name: name}, nil), ask: func(_ context.Context, ask string) (protocol.Reservation, error) {
			return a.note(name, ask), nil
		}})
	}
	return all
}

// take begins with the first host alone. It keeps no lock while another job
// holds one of them, and does not overtake earlier launches.
func TestTakeAllOrNone(t *testing.T) {
	for name, c := range map[string]struct {
		ahead, cause map[string]string // for each host: an earlier ticket in the queue, and why the locks cannot be taken
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

// steps sorts the requests that were sent to several hosts at the same time.
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

// newRequest returns a Request whose messages are printed to out.
func newRequest(out io.Writer, limit time.Duration, busy func() (string, error)) Request {
	return Request{Limit: limit, Printer: console.NewPrinter(console.Terminal{Stdout: io.Discard, Stderr: out}),
		Busy: func(context.Context) (string, error) { return busy() }}
}

// Wait prints what it waits for whenever that changes. Its error after the
// time limit contains it too.
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

// Wait returns when the user interrupts the launch.
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

// Tickets sort by the time at which the launches began.
func TestTicketsSortByTime(t *testing.T) {
	first := NewTicket()
	for now := time.Now(); !time.Now().After(now); {
	}
	if second := NewTicket(); first >= second || len(second) > 24 {
		t.Errorf("%s, then %s", first, second)
	}
}
