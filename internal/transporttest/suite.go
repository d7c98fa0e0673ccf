// Package transporttest is the test suite that every transport passes: every way to run
// commands on a host and to copy files there.
//
//	func TestTransport(t *testing.T) {
//		transporttest.Run(t, func(t *testing.T) transporttest.Transport { return dial(t) })
//	}
//
// The host must be this machine, under this user: the suite reads the files that it
// copied. It tests what package hosts relies on. Each transport tests what it adds, such
// as keys and lost networks.
package transporttest

import (
	"context"
	"io"
	"io/fs"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
)

// Transport is what package hosts needs of a host.
type Transport interface {
	Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error
	Copy(ctx context.Context, r io.Reader, size int64, path string, mode fs.FileMode) error
	Close() error
}

// exitStatus is the error of a command that exited with another status than 0.
type exitStatus interface {
	error
	ExitStatus() int
}

// Run runs the suite. open returns a transport of its own for each test; the
// suite closes it.
func Run(t *testing.T, open func(t *testing.T) Transport) {
	groups := []struct {
		name string
		run  func(*testing.T, func(*testing.T) Transport)
	}{
		{"Command", testCommand},
		{"Stream", testStream},
		{"End", testEnd},
		{"Copy", testCopy},
		{"CopyFailure", testCopyFailure},
		{"Parallel", testParallel},
	}
	for _, group := range groups {
		t.Run(group.name, func(t *testing.T) { group.run(t, open) })
	}
}

// opened opens a transport that is closed with the test.
func opened(t *testing.T, open func(*testing.T) Transport) Transport {
	t.Helper()
	transport := open(t)
	t.Cleanup(func() {
		if err := transport.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return transport
}

// within fails the test when f, which is quick, does not end.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience.Limit):
		t.Fatalf("%s took more than %v", what, patience.Limit)
	}
}
