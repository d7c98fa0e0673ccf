//go:build linux

package sockets

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// untilReached retries if a peer is unreachable, as after a network failure,
// and if a busy peer closes the connection.
func TestReachRetries(t *testing.T) {
	refused, crowded := &net.OpError{Op: "dial", Err: unix.EHOSTUNREACH}, &net.OpError{Op: "read", Err: unix.ECONNRESET}
	for _, c := range []struct {
		errs []error
		want error
		asks int
	}{
		{[]error{nil}, nil, 1},
		{[]error{refused, refused, nil}, nil, 3},
		{[]error{refused, unix.ECONNREFUSED, nil}, unix.ECONNREFUSED, 2},
		{[]error{crowded, io.EOF, nil}, nil, 3},
		{[]error{os.ErrDeadlineExceeded, nil}, os.ErrDeadlineExceeded, 1},
	} {
		asked := 0
		err := untilReached(func(context.Context) (net.Conn, error) {
			asked++
			ours, theirs := net.Pipe()
			theirs.Close()
			return ours, c.errs[asked-1]
		})
		if !errors.Is(err, c.want) || asked != c.asks {
			t.Errorf("%v: %v after %d, want %v after %d", c.errs, err, asked, c.want, c.asks)
		}
		if errors.Is(c.want, os.ErrDeadlineExceeded) && !strings.HasPrefix(err.Error(), "no answer within 10s: ") {
			t.Errorf("%v does not say how long was waited", err)
		}
	}
}

// Each reservation gets a port that no earlier one has, until all ports of the
// range are used.
func TestReservePrefersUnusedPorts(t *testing.T) {
	place, used := ListenRange{Addr: "127.0.0.77", Low: 23501, High: 23504}, map[string]bool{}
	reserve := func() string {
		t.Helper()
		s, err := place.Reserve(used)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Addr
	}
	seen := map[string]bool{}
	for range 4 {
		seen[reserve()] = true
	}
	if len(seen) != 4 {
		t.Errorf("four reservations of four ports: %v", seen)
	}
	if again := reserve(); !seen[again] {
		t.Errorf("%s is outside of the range", again)
	}
	held, err := place.Reserve(used)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if other := reserve(); other == held.Addr {
		t.Errorf("%s is reserved twice at a time", other)
	}
}
