package transport

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Errors are classified correctly even if callers have wrapped them.
func TestErrorsAreClassified(t *testing.T) {
	cause := errors.New("cut")
	for _, c := range []struct {
		err    error
		status int
		killed bool
		lost   string
	}{
		{nil, -1, false, ""},
		{cause, -1, false, ""},
		{&ExitError{Status: 127}, 127, false, ""},
		{&ExitError{Status: 137, Signal: "KILL"}, 137, true, ""},
		{&LostError{Host: "h1", By: "ssh", Cause: cause}, -1, false, "ssh: cut"},
		{&LostError{Host: "h1", Cause: cause}, -1, false, "cut"},
	} {
		for _, err := range []error{c.err, fmt.Errorf("read: %w", c.err), Unnamed("h1", c.err), WithMessage(c.err, "other words")} {
			if c.err == nil {
				err = nil
			}
			if ExitStatus(err) != c.status || Killed(err) != c.killed || LossReason(err) != c.lost || IsLost(err) != (c.lost != "") {
				t.Errorf("%v: status %d, killed %v, lost %q", err, ExitStatus(err), Killed(err), LossReason(err))
			}
		}
	}
	if got := Unnamed("h1", &LostError{Host: "h1", Cause: cause}).Error(); got != "connection lost: cut" {
		t.Errorf("%q has the host's name", got)
	}
}

type open struct{ Transport }

func (open) Close() error { return nil }

// The error after a timeout contains the time limit.
func TestTimeoutNamesItsLimit(t *testing.T) {
	c := NewConn("h1", func(context.Context) (Transport, error) { return open{}, nil })
	defer c.Close() // it is none
	ctx, cancel, err := c.WithTimeout(t.Context(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	<-ctx.Done()
	if err := context.Cause(ctx); err.Error() != "no answer within 1ms" {
		t.Errorf("%v", err)
	}
}

// Unnamed removes the prefix of the given host wherever a layer may have put
// it. It keeps the names of other hosts, and the lines of other joined errors.
func TestUnnamedRemovesHostName(t *testing.T) {
	for text, want := range map[string]string{
		"host h1: cut":                        "cut",
		"logs: host h1: log of worker:0: cut": "logs: log of worker:0: cut",
		"host h1: start: host h1: cut":        "start: cut",
		"host h1: a\nhost h1: b":              "a\nhost h1: b",
		"through jump host: host h2: cut":     "through jump host: host h2: cut",
		"host h10: cut":                       "host h10: cut",
		"cannot reach host h1: cut":           "cannot reach host h1: cut",
		"cut":                                 "cut",
	} {
		err := &LostError{Host: "h1", Cause: errors.New("cut")}
		if got := Unnamed("h1", WithMessage(err, text)); got.Error() != want || !errors.Is(got, err) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
