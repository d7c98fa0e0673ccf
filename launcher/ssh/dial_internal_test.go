package ssh

import (
	"context"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

// TestConnectTimeoutIsNotOverload dials a listener with a full queue. The
// attempt must fail with a timeout, which plx must not take for an overloaded
// server and retry.
func TestConnectTimeoutIsNotOverload(t *testing.T) {
	address := fullListener(t)
	for range 30 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		conn, err := connect(ctx, sshconfig.Target{Network: "tcp", Address: address}, nil)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() }) // it fills the queue
		} else if isRefusal(ctx, err) {
			t.Errorf("%v counts as a refusal for load", err)
		}
		cancel()
	}
}

// Pauses between attempts grow and are random, so that clients that were
// refused together do not retry together.
func TestBackoffIsRandom(t *testing.T) {
	for attempt, longest := range map[int]time.Duration{0: 200 * time.Millisecond, 1: 400 * time.Millisecond, 4: 3200 * time.Millisecond, 5: 4 * time.Second, 99: 4 * time.Second} {
		seen := map[time.Duration]bool{}
		least, most := longest, time.Duration(0)
		for range 500 {
			pause := backoff(attempt)
			seen[pause] = true
			least, most = min(least, pause), max(most, pause)
		}
		if least < longest/4 || least > longest/2 || most > longest || most < longest*3/4 || len(seen) < 400 {
			t.Errorf("attempt %d: %d pauses from %v to %v, want 500 from %v to %v", attempt, len(seen), least, most, longest/4, longest)
		}
	}
}

// fullListener returns the address of a listener whose queue for pending connections
// has length 0.
func fullListener(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
}
