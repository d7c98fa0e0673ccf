package ssh

import (
	"context"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// TestConnectDeadline dials a listener that takes no more connections. An
// attempt that ran into its deadline must be known as such: taken for a host
// under load it would be made again.
func TestConnectDeadline(t *testing.T) {
	address := fullListener(t)
	for range 30 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		conn, err := connect(ctx, address, nil)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() }) // it fills the queue
		} else if isRefusal(ctx, err) {
			t.Errorf("%v counts as a refusal for load", err)
		}
		cancel()
	}
}

// fullListener returns the address of a listener with a queue of no length.
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
