package transport

import (
	"errors"
	"fmt"
	"testing"
)

// What an error means does not depend on what callers have put around it.
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
		for _, err := range []error{c.err, fmt.Errorf("read: %w", c.err), unnamed("h1", c.err), Reworded(c.err, "other words")} {
			if c.err == nil {
				err = nil
			}
			if ExitStatus(err) != c.status || Killed(err) != c.killed || WhyLost(err) != c.lost || IsLost(err) != (c.lost != "") {
				t.Errorf("%v: status %d, killed %v, lost %q", err, ExitStatus(err), Killed(err), WhyLost(err))
			}
		}
	}
	if got := unnamed("h1", &LostError{Host: "h1", Cause: cause}).Error(); got != "connection lost: cut" {
		t.Errorf("%q has the host's name", got)
	}
}
