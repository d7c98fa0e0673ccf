package logstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// served returns what the host's agent prints of its logs to a new follower.
func (s *spooler) served(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	req := logs.Request{TailLines: -1, Follow: true}
	if err := logs.Serve(t.Context(), s.dir, req, func() bool { return true }, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// shown prints the logs of a job. The bytes in early have arrived in parts
// before; done reports that they are complete.
func shown(t *testing.T, s *spooler, early []byte, done bool) string {
	t.Helper()
	var out bytes.Buffer
	o := NewOutput(Config{Printer: console.NewPrinter(console.Terminal{Stdout: &out, Stderr: &out}), Logs: logs.Options{Hosts: []string{"h1"}}})
	e := NewEarly()
	var g Streams
	g.Follow(s.agent("h1", 0), e, o, patience)
	for len(early) > 0 {
		n := min(len(early), 1000)
		e.Add(protocol.Logged{Data: early[:n]})
		early = early[n:]
	}
	if done {
		e.Add(protocol.Logged{Done: true})
	}
	failed := g.Wait(nil, nil)
	if err := o.Close(); err != nil || len(failed) > 0 {
		t.Errorf("%v, %v", err, failed)
	}
	return out.String()
}

// Each line is printed once, whatever part of the logs arrived early. A
// command is started on the host only if the early logs are incomplete.
func TestEarlyLogs(t *testing.T) {
	t.Parallel()
	s := newSpooler(t, whole, 400, "worker:0", "worker:1")
	all := s.served(t)
	if len(all) > protocol.EarlyLogs {
		t.Fatalf("%d bytes are too many", len(all))
	}
	want := byTask(shown(t, s, nil, true))
	if n := s.tries.Swap(0); n != 1 || strings.Count(want, "\n") < 700 {
		t.Fatalf("%d commands, %d lines", n, strings.Count(want, "\n"))
	}
	for _, n := range []int{1, 3, 100, 20_000, len(all) - 30, len(all) - 1, len(all)} {
		if got := byTask(shown(t, s, all[:n], n < len(all))); got != want {
			t.Errorf("with %d of %d bytes: %d bytes shown, want %d", n, len(all), len(got), len(want))
		}
		if tries := s.tries.Swap(0); (tries == 0) != (n == len(all)) {
			t.Errorf("with %d of %d bytes: %d commands", n, len(all), tries)
		}
	}
}

// EarlyLogs logs beyond the limit are dropped, and the command on the host
// delivers the rest.
func TestEarlyLogsAreBounded(t *testing.T) {
	t.Parallel()
	e := NewEarly()
	for range 100 {
		e.Add(protocol.Logged{Data: make([]byte, 10_000)})
	}
	got, err := io.ReadAll(e)
	if len(got) != 60_000 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Cancelling the follower ends the wait for early logs.
func TestEarlyLogsEndWithStream(t *testing.T) {
	t.Parallel()
	s := newSpooler(t, whole, 10, "worker:0")
	ctx, cancel := context.WithCancelCause(t.Context())
	o := NewOutput(Config{Printer: console.NewPrinter(console.Terminal{Stdout: io.Discard, Stderr: io.Discard})})
	cause := errors.New("given up")
	cancel(cause)
	err := follow(ctx, s.agent("h1", 0), logs.Request{TailLines: -1, Follow: true}, NewEarly(), o, &liveness{}, patience)
	if !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}
