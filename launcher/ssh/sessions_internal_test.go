package ssh

import (
	"errors"
	"testing"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/transport"
)

// An exit signal is reported by its name and as exit status 128 plus its Linux
// number, as a shell does. A signal without a Linux number counts as 128.
func TestParseExit(t *testing.T) {
	report := func(kind string, content any) *gossh.Request {
		return &gossh.Request{Type: kind, Payload: gossh.Marshal(content)}
	}
	status := func(n uint32) *gossh.Request { return report("exit-status", struct{ Status uint32 }{n}) }
	for name, c := range map[string]struct {
		request *gossh.Request
		want    transport.ExitError
	}{
		"status":         {status(3), transport.ExitError{Status: 3}},
		"largest status": {status(1<<32 - 1), transport.ExitError{Status: 1<<32 - 1}},
		"unknown signal": {report("exit-signal", ExitSignal{Name: "OTHER"}), transport.ExitError{Status: 128, Signal: "OTHER"}},
	} {
		err, is := parseExit(c.request)
		var got *transport.ExitError
		if !is || !errors.As(err, &got) || *got != c.want {
			t.Errorf("%s: got %v, %v, want %v", name, err, is, &c.want)
		}
	}
	for _, name := range []string{"HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "XCPU", "XFSZ", "SYS"} {
		err, _ := parseExit(report("exit-signal", ExitSignal{Name: name}))
		var got *transport.ExitError
		if want := 128 + int(unix.SignalNum("SIG"+name)); !errors.As(err, &got) || got.Status != want || got.Signal != name {
			t.Errorf("signal %s: got %v, want status %d", name, err, want)
		}
	}
	if err, is := parseExit(status(0)); err != nil || !is {
		t.Errorf("status 0: got %v, %v", err, is)
	}
	for _, kind := range []string{"exit-status", "exit-signal"} {
		var exit *transport.ExitError
		if err, is := parseExit(&gossh.Request{Type: kind, Payload: []byte{1}}); !is || err == nil || errors.As(err, &exit) {
			t.Errorf("%s that is cut off: got %v, %v", kind, err, is)
		}
	}
	if _, is := parseExit(&gossh.Request{Type: "keepalive@openssh.com"}); is {
		t.Error("a keepalive counts as an exit report")
	}
}

// Two sessions are opened at once and the server refuses both. The first waits
// for the second to end, and must retry when that one is refused too.
func TestRefusedSessionWakesWaiters(t *testing.T) {
	s := sessions{ended: make(chan struct{})}
	first, _ := s.begin(), s.begin()
	if !s.refused() {
		t.Error("the other one is not waited for")
	}
	select {
	case <-first:
		t.Error("the other one has not ended yet")
	default:
	}
	if s.refused() {
		t.Error("nobody is there to wait for")
	}
	select {
	case <-first:
	default:
		t.Error("still waiting")
	}
}

// A session ends while the server refuses another one. The refused one must be
// retried.
func TestSessionEndDuringRefusalIsNoticed(t *testing.T) {
	s := sessions{ended: make(chan struct{})}
	s.begin()
	s.begin()
	freed := s.begin()
	s.end()
	if !s.refused() {
		t.Error("the other one is not waited for")
	}
	select {
	case <-freed:
	default:
		t.Error("still waiting")
	}
}
